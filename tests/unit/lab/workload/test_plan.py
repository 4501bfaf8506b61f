"""Workload files and what they become: contradictions, messages, fingerprints, the examples."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.decoding import convert
from forebay.lab.workload.plan import Workload, WorkloadSpec, read_workload
from forebay.lab.workload.request import PlannedRequest
from forebay.lab.workload.sessions import Transcripts
from forebay.lab.workload.tokens import count_tokens, tokenize

ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = sorted((ROOT / "examples" / "workloads").glob("*.toml"))
POISSON = {"kind": "poisson", "rate": 50.0}
LIGHT = {"name": "light", "input_tokens": 24, "output_tokens": 32}


def workload(folder: Path = Path(), **values: Any) -> Workload:
    return Workload(convert(values, WorkloadSpec, "w"), folder)


def tokens_of(messages: tuple[dict[str, str], ...]) -> int:
    return sum(count_tokens(message["content"]) for message in messages)


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"kinds": [LIGHT]},
        (
            "nothing says when requests come: add [arrivals] with a kind and a rate, "
            "or [closed_loop] with users."
        ),
    ),
    (
        {"arrivals": POISSON, "closed_loop": {"users": 3}, "kinds": [LIGHT]},
        "arrivals and closed_loop exclude each other: remove one of them.",
    ),
    ({"arrivals": POISSON}, "nothing says what is asked: add at least one [[kinds]]."),
    (
        {"arrivals": POISSON, "kinds": [LIGHT, LIGHT]},
        "two kinds are named light: give each a name of its own.",
    ),
    (
        {"arrivals": POISSON, "kinds": [LIGHT], "tenants": [{"name": "a"}, {"name": "a"}]},
        "two tenants are named a: give each a name of its own.",
    ),
    (
        {"arrivals": POISSON, "kinds": [{"name": "a"}]},
        "kind a says nothing of its questions: give input_tokens or queries.",
    ),
    (
        {"closed_loop": {"users": 3}, "kinds": [LIGHT | {"conversation": {"turns": 3}}]},
        (
            "kind light: a conversation needs arrivals that start it; "
            "it fits neither closed_loop nor a replay of whole requests."
        ),
    ),
    (
        {"arrivals": POISSON, "kinds": [LIGHT | {"queries": {"file": "none.txt"}}]},
        "none.txt does not exist; check the name and the folder.",
    ),
    (
        {"arrivals": {"kind": "gamma", "rate": 1, "cv": 2, "shape": 3}, "kinds": [LIGHT]},
        "arrivals.cv and arrivals.shape say the same: give one of them.",
    ),
]


@pytest.mark.parametrize(("values", "sentence"), WRONG)
def test_a_contradiction_is_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        workload(**values)
    assert caught.value.message == sentence


def test_a_file_is_named_in_its_errors_and_gives_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[arrivals]\nkind = "poisson"\nrate = 1\n')
    with pytest.raises(ConfigError, match=r"^mine\.toml: nothing says what is asked"):
        read_workload(tmp_path / "mine.toml")
    with (tmp_path / "mine.toml").open("a") as handle:
        handle.write('[[kinds]]\nname = "a"\nqueries = { file = "q.txt" }\n')
    (tmp_path / "q.txt").write_text("why\n")
    assert read_workload(tmp_path / "mine.toml").name == "mine"


def test_a_missing_trace_is_found_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        workload(tmp_path, arrivals={"kind": "trace", "file": "t.jsonl"})


def test_a_made_up_question_has_its_length_and_its_seed() -> None:
    planned = workload(arrivals=POISSON, kinds=[LIGHT])
    one, other = itertools.islice(planned.requests(1), 2)
    (message,) = planned.materialise(one, 1)
    assert message["role"] == "user" and count_tokens(message["content"]) == 24
    assert planned.materialise(one, 1) == planned.materialise(one, 1)
    assert len({planned.materialise(request, seed)[0]["content"]
                for request in (one, other) for seed in (1, 2)}) == 4  # fmt: skip


def test_a_chinese_kind_asks_in_chinese() -> None:
    planned = workload(arrivals=POISSON, kinds=[LIGHT | {"language": "zh"}])
    (message,) = planned.materialise(next(planned.requests(1)))
    assert re.search("[\u4e00-\u9fff]{4}", message["content"])
    assert count_tokens(message["content"]) == 24


def test_a_question_of_a_file_is_sent_as_it_is_or_filled_up(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("How long is the warranty?\n")
    kind = {"name": "q", "queries": {"file": "q.txt"}}
    planned = workload(tmp_path, arrivals=POISSON, kinds=[kind])
    request = next(planned.requests(1))
    assert planned.materialise(request) == (
        {"role": "user", "content": "How long is the warranty?"},
    )
    planned = workload(tmp_path, arrivals=POISSON, kinds=[kind | {"input_tokens": 500}])
    (message,) = planned.materialise(next(planned.requests(1)))
    assert message["content"].startswith("How long is the warranty?\n")
    assert count_tokens(message["content"]) == 500


def test_shared_blocks_come_first_and_are_the_same_for_every_seed() -> None:
    kind = LIGHT | {"system_prompt_tokens": 64, "documents": {"count": 3, "tokens": 100}}
    planned = workload(arrivals=POISSON, kinds=[kind])
    systems = set()
    for request in itertools.islice(planned.requests(1), 100):
        system, user = planned.materialise(request, request.index)
        assert (system["role"], user["role"]) == ("system", "user")
        assert count_tokens(system["content"]) == len(request.prefix) * 16 == 160
        assert tokens_of((system, user)) == request.input_tokens == 188
        systems.add(system["content"])
    assert len(systems) == 3
    assert len({tuple(tokenize(system)[:64]) for system in systems}) == 1


def test_a_traced_prompt_is_as_long_as_recorded_and_shares_its_blocks(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(
        '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [4, 5, 6]}\n'
        '{"timestamp": 1, "input_length": 1024, "output_length": 5, "hash_ids": [4, 7]}\n'
        '{"timestamp": 2, "input_length": 90, "output_length": 5}\n'
    )
    planned = workload(tmp_path, arrivals={"kind": "trace", "file": "t.jsonl"})
    requests = list(planned.requests(1))
    texts = [planned.materialise(request) for request in requests]
    assert [tokens_of(messages) for messages in texts] == [1_100, 1_024, 90]
    one, other = (tokenize(messages[0]["content"]) for messages in texts[:2])
    assert one[:512] == other[:512] and one[512:528] != other[512:528]


def test_a_conversation_sends_what_was_said() -> None:
    kind = LIGHT | {"system_prompt_tokens": 64, "conversation": {"turns": 3, "think_s": 1}}
    planned = workload(arrivals=POISSON, kinds=[kind])
    first = next(planned.requests(1))
    turns = [one for one in itertools.islice(planned.requests(1), 500)
             if one.session == first.session]  # fmt: skip
    transcripts = Transcripts()
    for request in turns:
        messages = transcripts.messages(request, planned.materialise(request, 1))
        assert tokens_of(messages) == request.input_tokens
        assert [message["role"] for message in messages] == (
            ["system"] + ["user", "assistant"] * request.turn + ["user"]
        )
        # An answer of the planned length keeps the prompts as long as planned.
        transcripts.answered(request, "yes " * request.output_tokens)


def test_the_fingerprint_is_about_requests_only(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("why\n")
    (tmp_path / "same.txt").write_text("why\n")

    def fingerprint(file: str = "q.txt", rate: float = 5, **more: Any) -> str:
        kinds = [{"name": "a", "queries": {"file": file}}]
        arrivals = {"kind": "poisson", "rate": rate}
        return workload(tmp_path, arrivals=arrivals, kinds=kinds, **more).fingerprint

    base = fingerprint()
    assert re.fullmatch("[0-9a-f]{16}", base)
    assert base == fingerprint("same.txt") == fingerprint(name="x", description="y")
    assert base != fingerprint(rate=6)
    keyed = fingerprint(tenants=[{"name": "a", "key": "one"}])
    assert keyed == fingerprint(tenants=[{"name": "a", "key": "two"}]) != base
    (tmp_path / "q.txt").write_text("why not\n")
    assert fingerprint() != base


def test_a_spec_survives_json(tmp_path: Path) -> None:
    for path in EXAMPLES:
        spec = read_workload(path).spec
        (tmp_path / "copy.json").write_bytes(msgspec.json.encode(spec))
        copied = Workload(read_spec(tmp_path / "copy.json"), path.parent)
        assert copied.spec == spec


def read_spec(path: Path) -> WorkloadSpec:
    return msgspec.json.decode(path.read_bytes(), type=WorkloadSpec)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(path: Path) -> None:
    planned = read_workload(path)
    requests = list(itertools.islice(planned.requests(1), 500))
    assert requests and planned.name == path.stem
    seen: set[str] = set()
    for request in requests:
        seen.add(request.kind)
        asked = request.input_tokens - request.history_tokens
        assert tokens_of(planned.materialise(request, 1)) == asked
    assert seen == {kind.name for kind in planned.spec.kinds}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 10


def test_a_request_is_small() -> None:
    # Ten million of them pass through a run; none may be tracked by the collector.
    assert not PlannedRequest.__struct_config__.gc
