"""What the light reranker sees: columns by hand, in both languages, for any text."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from forebay.kernel.documents import ChunkRow, Hit
from forebay.kernel.stages import HitVectors
from forebay.rerank.features import FEATURES, candidates_of, query_units
from tests.unit.rerank import plain_features


def hit(text: str, score: float = 0.5, title: str = "", **fields: object) -> Hit:
    row = ChunkRow(
        1, "d", 0, 0, len(text), text, "", 1, None, (), title, "s", "en", (), (), {}, 1
    )  # fmt: skip
    return Hit(msgspec.structs.replace(row, **fields), score, 1.0, 0.4)


def chinese(one: Hit) -> ChunkRow:
    return msgspec.structs.replace(one.chunk, language="zh")


def vectors(count: int, dimensions: int = 8) -> HitVectors:
    rows = np.random.default_rng(1).standard_normal((count + 1, dimensions)).astype("<f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return HitVectors(rows[0].tobytes(), rows[1:].tobytes(), dimensions)


def column(query: str, hits: list[Hit], name: str) -> list[float]:
    features = candidates_of(query, hits, vectors(len(hits))).features
    assert features.shape == (len(hits), len(FEATURES))
    values: list[float] = features[:, FEATURES.index(name)].tolist()
    return values


def test_units_are_stems_and_han_pairs_without_common_words() -> None:
    assert query_units("What are the Returned parcels?") == ("return", "parcel")
    assert query_units("ＦＢ-2041 备份脚本") == ("fb-2041", "备份", "份脚", "脚本")
    assert query_units("退") == ("退",)
    assert query_units("the of") == ()


@pytest.mark.parametrize(
    ("query", "near", "far"),
    [
        (
            "reset password portal",
            "To reset a password open the portal.",
            "Reset." + " x" * 120 + " The portal." + " y" * 120 + " A password.",
        ),
        (
            "重置门户密码",
            "重置门户密码的办法如下。",
            "重置。" + "甲" * 80 + "门户。" + "乙" * 80 + "密码。",
        ),
    ],
)
def test_words_that_stand_together_fill_a_window(query: str, near: str, far: str) -> None:
    language = "en" if query.isascii() else "zh"
    hits = [hit(text, language=language) for text in (near, far, "Nothing of the kind; 无关。")]
    windows = column(query, hits, "window")
    assert windows[0] > windows[1] > windows[2] == 0.0
    assert column(query, hits, "adjacent")[0] > column(query, hits, "adjacent")[1]


def test_titles_named_by_others() -> None:
    hits = [
        hit("Shot in Leland by King.", 0.9, "Maximum Overdrive (film)"),
        hit("Stephen King wrote it.", 0.8, "Stephen King"),
        hit("The film Maximum Overdrive was directed by Stephen King.", 0.7, "Directors"),
    ]
    query = "who directed maximum overdrive (film)"
    told = column(query, hits, "linked")
    assert told == pytest.approx([np.exp(-1), np.exp(-1), 0.0], rel=1e-5)
    foreign = [msgspec.structs.replace(hits[0], chunk=chinese(hits[0])), *hits[1:]]
    assert column(query, foreign, "linked")[0] == 0.0, "names say nothing across languages"


def test_numbers_count_apart() -> None:
    hits = [hit("Total sales in 2019 were high."), hit("Total sales in 2018 were high.")]
    assert column("total sales 2019", hits, "numbers") == [0.5, -0.5]
    assert column("total sales", hits, "numbers") == [0.0, 0.0]


def test_the_other_language_is_credited_with_the_favourites_words() -> None:
    hits = [
        hit("returns of parcels", 0.9),
        hit("退货", 0.8, language="zh"),
        hit("退货说明", 0.7, language=""),
        hit("nothing", 0.1),
    ]
    own, told, seen, other = column("parcels returns", hits, "window")
    assert own == 1.0 and other == 0.0
    assert told == seen == pytest.approx(1.0, abs=1e-3)
    assert column("parcels returns", hits, "across") == [0.5] * 4
    assert column("包裹退货", hits[1:], "window")[2] > 0.0, "an English text among Chinese ones"
    assert column("包裹退货 parcels", [hits[0], hits[3]], "window") == [0.0, 0.0], "all foreign"
    assert column("2019 包裹", [hit("in 2019"), hit("in 2018")], "numbers") == [0.5, -0.5]


def test_the_words_of_headings_and_tables_count() -> None:
    hits = [hit("| 7 |", context="| days |", heading_path=("Returns",)), hit("| 7 |")]
    assert column("returns days", hits, "early") == [1.0, 0.0]


def test_cosines_across_languages_count_once_more() -> None:
    hits = [hit("one"), hit("two"), hit("三", language="zh"), hit("四", language="zh")]
    hits = [
        msgspec.structs.replace(one, cosine=cosine)
        for one, cosine in zip(hits, (0.4, 0.2, 0.5, 0.3), strict=True)
    ]
    told, foreign = column("which", hits, "cosine"), column("which", hits, "cosine_foreign")
    assert told[2] > told[0] > 0.0 > told[3] > told[1]
    assert foreign == [0.0, 0.0, *told[2:]]


_SAID = (
    "return returns returned reset portal password door 2019 2.5% FB-2041 uk a i 退货 包裹 七天 "
    "备份脚本 上传 失败 退 退货退货退 GitHub备份脚本 ＦＢ－２０４１ élan élan's naïve Stephen King "
    "Maximum Overdrive transmissions understandably 𠮷野家 e. ( ) , 。 \n ﷺ"
).split(" ")


@pytest.mark.parametrize("seed", range(40))
def test_features_of_words_are_those_said_plainly(seed: int) -> None:
    chance = np.random.default_rng(seed)

    def said(words: int, apart: str) -> str:
        return apart.join(chance.choice(_SAID, words))

    hits = [
        hit(
            said(int(chance.integers(0, 300)), " " if chance.random() < 0.7 else ""),
            float(chance.random()),
            said(int(chance.integers(0, 4)), " ") + (" (film)" if chance.random() < 0.3 else ""),
            context=said(int(chance.integers(0, 4)), " "),
            heading_path=tuple(said(2, " ") for _ in range(chance.integers(0, 3))),
            language="en",
        )
        for _ in range(int(chance.integers(1, 12)))
    ]
    query = said(int(chance.integers(1, 40)), " " if chance.random() < 0.7 else "")
    chunks = [one.chunk for one in hits]
    made = candidates_of(query, hits, vectors(len(hits))).features
    first = FEATURES.index("window")
    wanted = plain_features.words(query, chunks)
    own = made[:, -1] == 0.0
    if not own.any():
        wanted[:, [0, 1, 3]] = 0.0
    assert made[:, first : first + 4] == pytest.approx(wanted, abs=1e-6)
    named = plain_features.linked([one.score for one in hits], chunks) * own
    assert set(made[:, -1]) <= {0.0, 1.0}, "all are of one language"
    assert made[:, FEATURES.index("linked")] == pytest.approx(named, abs=1e-6)


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("", ["a", ""]),
        ("the", ["", ""]),
        ("\ud800 lone", ["\ud800", "\x00"]),
        ("word " * 500, ["word " * 5000, "密" * 20_000]),
        ("q", ["one alone"]),
    ],
)
def test_any_text_gives_finite_numbers(query: str, texts: list[str]) -> None:
    hits = [msgspec.structs.replace(hit(text), bm25=None, cosine=None) for text in texts]
    made = candidates_of(query, hits, vectors(len(hits)))
    assert np.isfinite(made.features).all()


def test_features_follow_from_the_candidates_alone() -> None:
    hits = [hit(f"text {number} returns parcel", 0.9 - number / 10) for number in range(5)]
    told = vectors(5)
    one, two = (candidates_of("parcel returns", hits, told).features for _ in range(2))
    assert np.array_equal(one, two)


def test_the_nearest_sentence_counts_where_all_are_known() -> None:
    hits = [hit("one"), hit("two"), hit("three")]
    found = vectors(3)
    near = msgspec.structs.replace(found, nearest=[0.8, float("nan"), 0.2])
    read, at = FEATURES.index("read"), FEATURES.index("nearest")
    made = candidates_of("q", hits, near).features
    assert (made[:, read] == 1.0).all()
    assert made[0, at] > made[1, at] > made[2, at], "what has no sentences is one itself"
    plain = candidates_of("q", hits, found).features
    assert not plain[:, [at, read]].any()
    rest = [place for place in range(len(FEATURES)) if place not in (at, read)]
    assert (made[:, rest] == plain[:, rest]).all()
