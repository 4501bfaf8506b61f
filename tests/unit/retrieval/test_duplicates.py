"""Near-duplicates: the same text is one hit, and whatever may be a fact keeps two texts apart."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.kernel.documents import ChunkRow
from forebay.retrieval import duplicates
from forebay.retrieval.counts import pack_facts
from forebay.retrieval.duplicates import Distinct, nearness, sentences
from forebay.retrieval.terms import Analyzer

RETURNS = (
    "Parcels may be returned within thirty days of delivery. The fee is 5.50 EUR per parcel. "
    "Opened goods are not taken back before the manager of the Berlin branch has seen them."
)
RUECKGABE = (
    "退货需要在收到商品后7天内申请，并附上发票。超过期限的不予受理。联系人是张伟，代码为FB-2041。"
)


def row(text: str, **fields: object) -> ChunkRow:
    plain = ChunkRow(
        chunk_id=1,
        document_id="a",
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        context="",
        tokens=1,
        page=None,
        heading_path=(),
        title="",
        source="a",
        language="",
        tags=(),
        groups=(),
        metadata={},
        version=1,
    )
    return msgspec.structs.replace(plain, **fields)


def same(kept: ChunkRow | str, other: ChunkRow | str) -> bool:
    """Whether a worse hit says nothing beside a better one."""
    distinct = Distinct()
    rows = [row(each) if isinstance(each, str) else each for each in (kept, other)]
    assert distinct.adds(rows[0])
    return not distinct.adds(rows[1])


@pytest.mark.parametrize(
    "copy",
    [
        RETURNS,
        RETURNS.replace(". ", ".\n"),
        "  " + RETURNS.replace(" ", "  "),
        RETURNS.replace("The fee", "\u2022 The fee").rstrip("."),
        RETURNS.replace("Parcels", "Please: parcels").replace("Please: parcels", "Parcels"),
        RETURNS.replace("The fee", "Fee").replace("Fee is", "the fee is"),
        " ".join(reversed([f"{part}." for part in RETURNS.rstrip(".").split(". ")])),
        RETURNS.split(". The", maxsplit=1)[0] + ".",
    ],
)
def test_the_same_in_other_typography_order_or_less_of_it(copy: str) -> None:
    assert same(RETURNS, copy)


@pytest.mark.parametrize(
    "copy",
    [
        RUECKGABE,
        RUECKGABE.replace("，", ","),
        RUECKGABE.replace("7", "\uff17").replace("FB", "\uff26\uff22"),
        RUECKGABE.replace("。", "。\n"),
        RUECKGABE.replace("收到商品", "收到 商品"),
    ],
)
def test_chinese_copies(copy: str) -> None:
    assert same(RUECKGABE, copy)


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("thirty", "forty"),
        ("5.50", "5.5"),
        ("5.50", "55.0"),
        ("5.50", "-5.50"),
        ("not ", ""),
        ("before", "after"),
        ("may", "may not"),
        ("may", "must"),
        ("Berlin", "Bern"),
        ("EUR", "USD"),
        ("EUR", "eur"),
        ("manager", "owner"),
        ("delivery.", "delivery?"),
    ],
)
def test_a_fact_keeps_texts_apart(word: str, other: str) -> None:
    changed = RETURNS.replace(word, other, 1)
    assert changed != RETURNS
    assert not same(RETURNS, changed) and not same(changed, RETURNS)


@pytest.mark.parametrize(
    ("word", "other"),
    [("7天", "8天"), ("不予", "予以"), ("张伟", "张玮"), ("FB-2041", "FB-2401"), ("后", "前")],
)
def test_a_chinese_fact_keeps_texts_apart(word: str, other: str) -> None:
    changed = RUECKGABE.replace(word, other, 1)
    assert changed != RUECKGABE
    assert not same(RUECKGABE, changed) and not same(changed, RUECKGABE)


@given(st.integers(0, 2**32))
def test_no_other_word_is_taken_for_the_same(seed: int) -> None:
    chance = random.Random(seed)
    words = [chance.choice(["no", "ten", "May", "C++", "x_1", "up", "7"]) for _ in range(40)]
    text = " ".join(words)
    place = chance.randrange(len(words))
    changed = [*words]
    changed[place] = chance.choice(["yes", "eleven", "may", "C", "x_2", "down", "-7"])
    assert not same(text, " ".join(changed))
    del changed[place]
    assert not same(text, " ".join(changed))


def test_more_than_the_better_hit_says_is_new() -> None:
    assert not same(RETURNS.split(". The", maxsplit=1)[0] + ".", RETURNS)


def test_headings_table_headers_and_numbers_in_titles_keep_texts_apart() -> None:
    plain = row(RETURNS, title="Policy")
    assert same(plain, row(RETURNS, title="Policy (copy)"))
    assert not same(plain, row(RETURNS, title="Policy 2026"))
    assert not same(row(RETURNS, title="Policy 2025"), row(RETURNS, title="Policy 2026"))
    assert not same(plain, row(RETURNS, title="Policy", heading_path=("Model B",)))
    assert not same(plain, row(RETURNS, title="Policy", context="| price |"))


def test_what_is_refused_does_not_hide_others() -> None:
    distinct = Distinct()
    taken = [
        distinct.adds(row(text))
        for text in (RETURNS, RETURNS, RETURNS.replace("thirty", "ten"), RETURNS)
    ]
    assert taken == [True, False, True, False]


@given(st.text(max_size=400))
@example("-")
def test_any_text_is_itself(text: str) -> None:
    assert same(text, text) == bool(sentences(text))
    assert sentences(text) == sentences(text + " ")


def packed(one: ChunkRow) -> bytes:
    analyzer = Analyzer(stemming=True)
    terms = analyzer.document(f"{one.context}\n{one.text}")
    return pack_facts(terms + analyzer.document(one.title), chinese=False)


def taken_of(rows: list[ChunkRow], facts: list[bytes | None] | None) -> list[bool]:
    distinct = Distinct() if facts is None else Distinct(nearness(facts))
    return [distinct.adds(each, place) for place, each in enumerate(rows)]


@given(st.integers(0, 2**32))
def test_with_facts_the_same_are_taken_and_fewer_compared(seed: int) -> None:
    chance = random.Random(seed)
    said = [*RETURNS.rstrip(".").split(". "), "Of books we keep two", "The store opens at nine"]
    gesagt = [*RUECKGABE.rstrip("。").split("。"), "门店九点开门", "图书保留两本，杂志保留一本"]
    rows = []
    for _ in range(20):
        pick, stop = chance.choice([(said, ". "), (gesagt, "。"), (gesagt, "。\n"), (said, ".\n")])
        text = stop.join(chance.sample(pick, chance.randint(1, len(pick)))) + stop.rstrip()
        text = chance.choice([text, text.replace("，", ","), text.replace(" ", "\u00a0")])
        title = chance.choice(["", "Policy", "Policy (copy)", "A long title of other words " * 9])
        rows.append(row(text, title=title))
    plain = taken_of(rows, None)
    facts = [packed(one) if chance.random() < 0.9 else None for one in rows]
    assert taken_of(rows, facts) == plain
    assert not all(plain)


def test_tables_of_other_numbers_are_not_cut_into_sentences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []
    monkeypatch.setattr(duplicates, "_holds", lambda said, text: compared.append(text))
    years = "Year | Revenues | Expenses\n" + "\n".join(
        f"{y} | {y * 37}.5 | {y * 91}" for y in range(9)
    )
    others = years.translate(str.maketrans("0123456789", "5678901234"))
    assert not same(years, others) and not compared
    assert not same(years, years) and compared == [years]


def test_texts_of_other_words_are_not_near() -> None:
    facts = [packed(row(text)) for text in (RETURNS * 2, RUECKGABE, RETURNS)]
    assert nearness(facts).tolist() == [
        [True, False, True],
        [False, True, False],
        [True, False, True],
    ]
    assert nearness([None, b"", *facts])[:2].all(), "of no terms nothing can be said"
    assert nearness([None, *facts])[:, 0].all()
