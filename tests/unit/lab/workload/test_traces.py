"""Public traces and the request log: read, windowed, scaled, looped; bad rows are named."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.trace_formats import TraceFormat, TraceRow, detect_format, read_rows
from forebay.lab.workload.traces import TraceArrivals, in_order, replay
from tests.unit.lab.workload.statistics import KS_CRITICAL_001, ks_two_samples

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def rows_of(folder: Path, seed: int = 1, **options: Any) -> list[TraceRow]:
    spec = TraceArrivals(**options)
    return list(replay(spec, folder, np.random.default_rng(seed)))


def steady(folder: Path, count: int, gap_s: float = 0.1) -> str:
    """A BurstGPT file with one request every ``gap_s`` seconds, of row-number tokens."""
    lines = [f"{n * gap_s:.3f},GPT-4,{n + 1},7,{n + 8},API log" for n in range(count)]
    (folder / "steady.csv").write_text(BURSTGPT + "\n".join(lines) + "\n")
    return "steady.csv"


def test_azure_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        AZURE + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    assert detect_format(tmp_path / "a.csv") == "azure"
    first, second = rows_of(tmp_path, file="a.csv")
    assert (first.at_s, first.input_tokens, first.output_tokens) == (0, 374, 44)
    assert second.at_s == pytest.approx(4.314579, abs=1e-6)


def test_burstgpt_rows_and_their_failures(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(
        BURSTGPT
        + "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n"
        + "118.5,GPT-4,417,276,693,API log\n"
    )
    assert detect_format(tmp_path / "b.csv") == "burstgpt"
    rows = rows_of(tmp_path, file="b.csv")
    assert [(row.at_s, row.input_tokens, row.kind) for row in rows] == [
        (0, 472, "conversation"),
        (113.5, 417, "api"),
    ]
    assert len(rows_of(tmp_path, file="b.csv", keep_failed=True)) == 3


def test_burstgpt_columns_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type\n1,s,2,GPT-4,10,20,30,API log\n"
    )
    (row,) = rows_of(tmp_path, file="b.csv")
    assert (row.input_tokens, row.output_tokens) == (10, 20)


def test_mooncake_rows(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(
        '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 3052, "input_length": 40, "output_length": 3, "hash_ids": [0]}\n'
    )
    assert detect_format(tmp_path / "m.jsonl") == "mooncake"
    first, second = rows_of(tmp_path, file="m.jsonl")
    assert first.prefix == (0, 1, 2) and first.block_tokens == 512
    assert second.at_s == pytest.approx(3.052)


def test_the_request_log(tmp_path: Path) -> None:
    line = (
        '{{"time":"2026-03-01T10:00:{0:06.3f}Z","level":"info","logger":"forebay.access",'
        '"status":200,"duration_ms":{1},"tenant":"acme","prompt_tokens":900,'
        '"completion_tokens":60{2}}}\n'
    )
    (tmp_path / "log.jsonl").write_text(
        '{"time":"2026-03-01T10:00:00.000Z","logger":"forebay.app","message":"ready"}\n'
        # The second line's request began first: a line is written at the answer's end.
        + line.format(3.0, 500, "")
        + line.format(4.0, 3000, ',"question_tokens":12,"question_hash":"ab","kind":"faq",'
                                 '"priority":"high","deadline_ms":2500')
        + '{"time":"2026-03-01T10:00:05.000Z","logger":"forebay.access","duration_ms":1}\n'
        + line.format(9.0, 500, ',"question_hash":"ab"')
    )  # fmt: skip
    assert detect_format(tmp_path / "log.jsonl") == "forebay"
    first, second, third = rows_of(tmp_path, file="log.jsonl")
    assert (first.at_s, second.at_s, third.at_s) == pytest.approx((0, 1.5, 7.5))
    assert (first.kind, first.tenant, first.priority) == ("faq", "acme", "high")
    assert (first.deadline_s, first.input_tokens, second.input_tokens) == (2.5, 12, 900)
    assert first.prefix == third.prefix != second.prefix == ()
    assert first.block_tokens == 12


@pytest.mark.parametrize(
    ("form", "content", "sentence"),
    [
        ("azure", AZURE + "2023-11-16 18:15:46,374\n", "line 2: the row has 2 of 3 columns"),
        ("azure", AZURE + "yesterday,1,2\n", 'line 2: "yesterday" is no time stamp'),
        ("azure", AZURE + "2023-11-16 18:15:46,-4,2\n",
         'line 2: ContextTokens "-4" is no number of tokens'),
        ("azure", AZURE + "2023-11-16 18:15:46,4,2.5\n",
         'line 2: GeneratedTokens "2.5" is no number of tokens'),
        ("azure", "TIMESTAMP,ContextTokens\n", "line 1: the header has no column GeneratedTokens"),
        ("burstgpt", BURSTGPT + "1,m,1,1,2,API log\nnan,m,1,1,2,API log\n",
         'line 3: Timestamp "nan" is no number of seconds'),
        ("burstgpt", BURSTGPT + "1,m,,1,2,API log\n",
         'line 2: Request tokens "" is no number of tokens'),
        ("mooncake", '{"timestamp":0,"input_length":1,"output_length":1}\n{"timestamp":1}\n',
         "line 2: this is no row of such a trace (Object missing required field input_length)"),
        ("mooncake", '{"timestamp":0,"input_length":-1,"output_length":1}\n',
         "line 1: this is no row of such a trace (Expected int >= 0 in input_length)"),
        ("mooncake", "{\n", "line 1: this is no row of such a trace (Input data was truncated)"),
        ("forebay", '{"logger":"forebay.access","prompt_tokens":4,"time":"noon"}\n',
         'line 1: "noon" is no time stamp'),
    ],
)  # fmt: skip
def test_a_malformed_row_names_file_and_line(
    tmp_path: Path, form: TraceFormat, content: str, sentence: str
) -> None:
    (tmp_path / "trace").write_text(content)
    with pytest.raises(ConfigError) as caught:
        list(read_rows(tmp_path / "trace", form))
    assert caught.value.message == f"trace {sentence}; mend or remove the line."


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text("{" + " " * (5 << 20))
    with pytest.raises(ConfigError, match="line 1: the line is longer"):
        list(read_rows(tmp_path / "m.jsonl", "mooncake"))


def test_other_files_are_no_traces(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="no trace this program knows"):
        rows_of(tmp_path, file="x.csv")
    (tmp_path / "x.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        rows_of(tmp_path, file="x.bin")
    with pytest.raises(ConfigError, match="does not exist"):
        rows_of(tmp_path, file="missing.csv")


def test_rows_are_sorted_within_a_window_and_refused_beyond() -> None:
    rows = [TraceRow(at_s, 1, 1) for at_s in (3.0, 1.0, 2.0, 5.0, 4.0, 6.0)]
    assert [row.at_s for row in in_order(rows, 3, Path("t.csv"))] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(ConfigError) as caught:
        list(in_order([*rows, TraceRow(0.5, 1, 1)], 3, Path("t.csv")))
    assert caught.value.message == (
        "t.csv: request 7 is 2.5 s older than one more than 3 rows before it; "
        "sort the file by time or raise sort_rows."
    )


def test_a_window_of_the_trace(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, file=steady(tmp_path, 100), start_s=2, window_s=3)
    assert [row.input_tokens for row in rows] == list(range(21, 51))
    assert rows[0].at_s == pytest.approx(0) and rows[-1].at_s == pytest.approx(2.9)
    with pytest.raises(ConfigError, match="no request in the wanted window"):
        rows_of(tmp_path, file="steady.csv", start_s=50)


def test_time_scale_stretches_every_gap(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, file=steady(tmp_path, 50), time_scale=0.5)
    assert [row.at_s for row in rows] == pytest.approx([n * 0.05 for n in range(50)])


def test_a_run_may_be_shorter_than_its_trace(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, file=steady(tmp_path, 50), time_scale=2.0, duration_s=4)
    assert len(rows) == 20


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
@pytest.mark.parametrize("scale", [0.1, 0.5, 1.7, 3.0])
def test_rate_scale_changes_the_number_and_not_the_course(
    tmp_path: Path, scale: float, seed: int
) -> None:
    # Two halves: 2,000 requests in 20 s, then 1,000 in 20 s.
    times = [n * 0.01 for n in range(2_000)] + [20 + n * 0.02 for n in range(1_000)]
    lines = [f"{at_s:.3f},m,5,5,10,API log" for at_s in times]
    (tmp_path / "t.csv").write_text(BURSTGPT + "\n".join(lines) + "\n")
    rows = rows_of(tmp_path, seed, file="t.csv", rate_scale=scale)
    seen = [row.at_s for row in rows]
    part = scale % 1
    sigma = math.sqrt(3_000 * part * (1 - part))
    assert abs(len(rows) - 3_000 * scale) <= 3 * sigma
    assert seen == sorted(seen)
    # The distribution over time is the trace's, but for copies that come up to a second later.
    assert ks_two_samples(seen, times) < KS_CRITICAL_001 + 0.03 * math.sqrt(1_000)


def test_copies_come_at_other_times_with_prefixes_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(
        "".join(
            f'{{"timestamp": {n * 100}, "input_length": 600, "output_length": 5, '
            f'"hash_ids": [0, {n}]}}\n'
            for n in range(1, 200)
        )
    )
    rows = rows_of(tmp_path, file="m.jsonl", rate_scale=2.0)
    assert len({row.at_s for row in rows}) == len(rows) == 398
    firsts = [row.prefix[0] for row in rows]
    assert len(set(firsts)) == 2 and firsts.count(0) == 199


def test_the_same_seed_scales_alike(tmp_path: Path) -> None:
    name = steady(tmp_path, 200)
    once, again, other = (rows_of(tmp_path, seed, file=name, rate_scale=0.5) for seed in (4, 4, 5))
    assert once == again != other


def test_a_loop_goes_on_at_the_same_rate(tmp_path: Path) -> None:
    spec = TraceArrivals(file=steady(tmp_path, 10), loop=True)
    rows = list(itertools.islice(replay(spec, tmp_path, np.random.default_rng(1)), 35))
    assert [row.at_s for row in rows] == pytest.approx([n * 0.1 for n in range(35)])
    assert rows[10].input_tokens == rows[0].input_tokens
    spec = TraceArrivals(file="steady.csv", loop=True, window_s=0.5)
    rows = list(itertools.islice(replay(spec, tmp_path, np.random.default_rng(1)), 12))
    assert [row.at_s for row in rows] == pytest.approx([n * 0.1 for n in range(12)])


def test_every_pass_of_a_loop_has_prefixes_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
        '{"timestamp": 900, "input_length": 600, "output_length": 5, "hash_ids": [0, 2]}\n'
    )
    spec = TraceArrivals(file="m.jsonl", loop=True)
    rows = list(itertools.islice(replay(spec, tmp_path, np.random.default_rng(1)), 6))
    assert [row.prefix[0] == rows[0].prefix[0] for row in rows] == [True, True] + [False] * 4
    assert rows[2].prefix[0] == rows[3].prefix[0] != rows[4].prefix[0]


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    name = steady(tmp_path, 20_000)

    def peak_bytes(passes: int) -> int:
        tracemalloc.start()
        spec = TraceArrivals(file=name, loop=True, rate_scale=2.0, sort_rows=100)
        rows = replay(spec, tmp_path, np.random.default_rng(1))
        for _ in itertools.islice(rows, 10_000 * passes):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(4) < 1.5 * peak_bytes(1)


def test_the_public_traces_are_read_whole(shared_data: Path) -> None:
    folder = shared_data / "traces"
    counts = {
        name: sum(1 for _ in replay(TraceArrivals(file=name), folder, np.random.default_rng(1)))
        for name in (
            "azure_2023_code.csv",
            "azure_2023_conversation.csv",
            "mooncake_conversation.jsonl",
            "mooncake_synthetic.jsonl",
        )
    }
    assert counts == {
        "azure_2023_code.csv": 8_819,
        "azure_2023_conversation.csv": 19_366,
        "mooncake_conversation.jsonl": 12_031,
        "mooncake_synthetic.jsonl": 3_993,
    }


@pytest.mark.parametrize("rate_scale", [1.0, 2.0])
@pytest.mark.parametrize(
    ("name", "hit_rate"), [("mooncake_conversation", 0.366), ("mooncake_synthetic", 0.640)]
)
def test_an_endless_prefix_cache_finds_as_much_as_published(
    shared_data: Path, name: str, hit_rate: float, rate_scale: float
) -> None:
    spec = TraceArrivals(file=f"{name}.jsonl", rate_scale=rate_scale)
    seen: set[int] = set()
    hits = blocks = 0
    for row in replay(spec, shared_data / "traces", np.random.default_rng(1)):
        hits += sum(1 for _ in itertools.takewhile(seen.__contains__, row.prefix))
        blocks += len(row.prefix)
        seen.update(row.prefix)
    assert hits / blocks == pytest.approx(hit_rate, abs=0.0005)
