"""Words: what is found, by whom, and that neither deletes nor merges change a score."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from forebay.kernel.errors import StoreBusy, StoreError
from forebay.retrieval import KbIndex, RetrievalSettings
from forebay.retrieval.keys import filter_keys
from forebay.retrieval.settings import LexicalSettings
from forebay.testing.index_feed import MemoryIndexFeed
from tests.unit.retrieval.bm25 import brute_force

WORDS = "alpha beta gamma delta epsilon 北京 大学 银行 退货 发票 running runs ran".split()


def found(index: KbIndex, text: str, limit: int = 10) -> list[int]:
    view = index.snapshot().lexical
    ids: list[int] = view.search(view.parse(text), (), limit).ids.tolist()
    return ids


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("C++ (foo", 0),
        ('"x', 1),
        ("id:3", 1),
        ("-词", 2),
        ("词", 2),
        ("北京大学", 3),
        ("大学生", 3),
        ("the", 4),
        ("的", 5),
        ("ＡＢＣ", 6),
        ("café", 7),
        ("cafe", 7),
        ("getUserName", 8),
        ("user name", 8),
        ("running", 4),
        ("42,000", 9),
        ("AND", 0),
    ],
)
def test_finds_what_a_person_means(tmp_path: Path, query: str, expected: int) -> None:
    record = MemoryIndexFeed()
    ids = record.add(
        "C++ and (foo)",
        'an x with "id" 3',
        "一个词语",
        "北京大学生前来应聘",
        "the runner runs",
        "我的书",
        "abc",
        "a café in Paris",
        "call getUserName() first",
        "it costs 42000 dollars",
    )
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    assert found(index, query)[0] == ids[expected]
    index.close()


@pytest.mark.parametrize("query", ["", " ", "*", "🙂", "!?", "\ud800", "\x00", "AND OR NOT" * 5000])
def test_any_text_is_a_query(tmp_path: Path, query: str) -> None:
    record = MemoryIndexFeed()
    record.add("nothing of the kind")
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    assert found(index, query) == []
    index.close()


def test_titles_and_headings_count_more_than_body(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    record.add("about invoices in passing, and other things", document="a")
    [titled] = record.add("how it is done, and other things here", document="b", title="Invoices")
    [headed] = record.add("steps", document="c", heading_path=("退货", "流程"))
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    assert found(index, "invoices")[0] == titled
    assert found(index, "退货") == [headed]
    index.close()


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_living_chunks_through_deletes_and_merges(
    tmp_path: Path, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    record = MemoryIndexFeed()
    settings = RetrievalSettings()
    index = KbIndex.open(tmp_path, "kb", record, writable=True, settings=settings)
    segments = []
    for round_number in range(40):
        texts = [" ".join(chance.choice(WORDS, size=chance.integers(1, 30))) for _ in range(4)]
        record.add(*texts)
        if len(record.live) > 8:
            gone = chance.choice(sorted(record.live), size=3, replace=False)
            record.remove(*gone.tolist())
        index.refresh()
        for folded in (False, True)[: 1 + (round_number % 3 > 0)]:
            if folded:
                index.maintain()
            view = index.snapshot().lexical
            segments.append(view.segments)
            for text in ("alpha", "alpha 北京大学 runs unknown", "ran 退货 the"):
                hits = view.search(view.parse(text), (), 100)
                expected = brute_force(record, text, settings.lexical)
                assert hits.ids.tolist() == [chunk_id for chunk_id, _ in expected]
                assert np.allclose(hits.scores, [score for _, score in expected], atol=1e-9)
    assert any(after < before for before, after in itertools.pairwise(segments)), (
        "the engine merged nothing: the test shows nothing"
    )
    index.close()


def test_words_that_are_everywhere_order_chunks_but_find_none(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    ids = record.add("rare common", "rare plain", *["common"] * 60, *["plain"] * 60)
    lexical = LexicalSettings(common_from_chunks=0, common_share=1.0, unproposed_worth_max=0.3)
    for words, expected in ((lexical, ids[:2]), (LexicalSettings(), ids[:1])):
        settings = RetrievalSettings(lexical=words)
        index = KbIndex.open(tmp_path, "kb", record, writable=True, settings=settings)
        view = index.snapshot().lexical
        hits = view.search(view.parse("common rare"), (), 10)
        assert hits.ids.tolist()[: len(expected)] == list(expected)
        assert (len(hits.ids) == len(expected)) == (words is lexical)
        assert hits.scores[0] > hits.scores[1] > 0.0
        index.close()


def test_results_are_the_same_after_a_restart(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    for number in range(30):
        ids = record.add(f"alpha {number}", "beta gamma " * (number % 5 + 1), "alpha beta")
        record.remove(ids[0])
        index.refresh()
    before = index.snapshot().lexical
    first = before.search(before.parse("alpha beta 7"), (), 50)
    index.close()
    again = KbIndex.open(tmp_path, "kb", record, writable=True)
    after = again.snapshot().lexical
    second = after.search(after.parse("alpha beta 7"), (), 50)
    assert first.ids.tolist() == second.ids.tolist()
    assert np.allclose(first.scores, second.scores, atol=1e-9)
    again.close()


def test_group_rights_and_filters_apply_inside(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    [public] = record.add("alpha public", document="p")
    [secret] = record.add("alpha secret", document="s", groups=("hr",), tags=("a", "b"))
    [other] = record.add("alpha other", document="o", groups=("it",), metadata={"year": "2024"})
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    view = index.snapshot().lexical

    def seen(groups: frozenset[str] | None, **wanted: str | tuple[str, ...]) -> set[int]:
        hits = view.search(view.parse("alpha"), filter_keys(wanted, groups), 10)
        assert set(hits.ids.tolist()) == set(view.allowed(filter_keys(wanted, groups)).tolist())
        return set(hits.ids.tolist())

    assert seen(None) == {public, secret, other}
    assert seen(frozenset()) == {public}
    assert seen(frozenset({"hr"})) == {public, secret}
    assert seen(frozenset({"p", "*", "g:hr", "x"})) == {public}
    assert seen(None, year="2024") == {other}
    assert seen(None, tags="b") == {secret}
    assert seen(None, tags=("b", "z"), document_id="s") == {secret}
    assert seen(None, document_id=("s", "o")) == {secret, other}
    assert seen(None, document_id=()) == set()
    assert seen(frozenset({"it"}), document_id="s") == set()
    index.close()


def test_a_long_value_does_not_open_a_filter(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    long = "x" * 100_000
    [held] = record.add("alpha", groups=(long,))
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    view = index.snapshot().lexical
    query = view.parse("alpha")
    assert view.search(query, filter_keys({}, frozenset({long})), 5).ids.tolist() == [held]
    assert not len(view.search(query, filter_keys({}, frozenset({long + "y"})), 5).ids)
    index.close()


def test_a_lost_sidecar_write_costs_only_work(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    record.add("alpha one", "beta two")
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    published = (tmp_path / "applied").read_bytes()
    first, *_ = record.add("alpha three", "gamma")
    record.remove(1)
    index.refresh()
    index.close()
    (tmp_path / "applied").write_bytes(published)
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    assert found(index, "alpha") == [first]
    assert index.snapshot().lexical.chunks == 3
    index.close()


@pytest.mark.parametrize("harm", ["sidecar", "meta", "folder", "format", "segments"])
def test_what_is_damaged_is_built_again(tmp_path: Path, harm: str) -> None:
    record = MemoryIndexFeed()
    ids = record.add("alpha one", "beta two")
    KbIndex.open(tmp_path, "kb", record, writable=True).close()
    [folder] = tmp_path.glob("lexical-*")
    if harm == "sidecar":
        (tmp_path / "applied").write_bytes(b"\x00")
    elif harm == "meta":
        (folder / "meta.json").write_bytes(b"{}")
    elif harm == "format":
        text = (tmp_path / "applied").read_text().replace('"format":"', '"format":"0.')
        (tmp_path / "applied").write_text(text)
    else:
        for path in folder.iterdir():
            if harm == "folder" or path.suffix in (".term", ".fast", ".idx"):
                path.unlink()
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    assert found(index, "alpha") == [ids[0]]
    assert len(list(tmp_path.glob("lexical-*"))) == 1
    index.close()


def test_a_reader_sees_what_the_writer_published(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    reader = KbIndex.open(tmp_path, "kb", record, writable=False)
    assert reader.snapshot().version == 0
    [first] = record.add("alpha")
    writer = KbIndex.open(tmp_path, "kb", record, writable=True)
    assert reader.refresh() == writer.snapshot().version == 1
    assert found(reader, "alpha") == [first]
    pinned = reader.snapshot()
    [second] = record.add("alpha alpha")
    assert reader.refresh() == 1, "not published yet"
    writer.refresh()
    assert reader.refresh() == 2
    assert set(found(reader, "alpha")) == {first, second}
    query = pinned.lexical.parse("alpha")
    assert pinned.lexical.search(query, (), 10).ids.tolist() == [first], "snapshots do not move"
    writer.close()
    reader.close()


def test_a_second_writer_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    [first] = record.add("alpha")
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    [second] = record.add("beta alpha")
    with pytest.raises(StoreBusy, match="another process"):
        KbIndex.open(tmp_path, "kb", record, writable=True)
    index.refresh()
    assert set(found(index, "alpha")) == {first, second}
    index.close()
    with pytest.raises(StoreError, match="closed"):
        index.refresh()


def test_a_record_that_forgot_its_past_is_indexed_anew(tmp_path: Path) -> None:
    record = MemoryIndexFeed()
    record.add("alpha")
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    record.remove(1)
    [second] = record.add("alpha beta")
    record.prune()
    index.refresh()
    assert found(index, "alpha") == [second]
    index.close()
