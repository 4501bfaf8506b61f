"""Strict reading: whatever is wrong with a workload file is one sentence with the key in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.decoding import convert, read_values
from forebay.lab.workload.plan import WorkloadSpec

KIND = {"name": "a", "input_tokens": 2}
POISSON = {"kind": "poisson", "rate": 5}


def kind(**values: Any) -> dict[str, Any]:
    return {"arrivals": POISSON, "kinds": [KIND | values]}


def arrivals(**values: Any) -> dict[str, Any]:
    return {"arrivals": values, "kinds": [KIND]}


# What is wrong, and the sentence about it without the file's name.
WRONG: list[tuple[dict[str, Any], str]] = [
    (arrivals(kind="poisson", rate=-5), "arrivals.rate: expected a number above 0."),
    (arrivals(kind="poisson", rate=float("nan")), "arrivals.rate: expected a number above 0."),
    (
        arrivals(kind="poisson", rate=float("inf")),
        "arrivals.rate: expected a number of at most 1e+07.",
    ),
    (arrivals(kind="poisson", rate=True), "arrivals.rate: expected a number, got true or false."),
    (
        arrivals(kind="poisson", rate=5, duration_s=0),
        "arrivals.duration_s: expected a number above 0.",
    ),
    (
        arrivals(kind="poison", rate=5),
        'arrivals.kind = "poison" is unknown; did you mean poisson?',
    ),
    (
        arrivals(kind=["poisson"], rate=5),
        "arrivals.kind = \"['poisson']\" is unknown; did you mean poisson?",
    ),
    (
        arrivals(rate=5),
        "arrivals.kind is missing; one of constant, poisson, gamma, steps, ramp, pulse, trace.",
    ),
    (arrivals(kind="poisson", rat=5), "unknown key arrivals.rat; did you mean rate?"),
    (arrivals(kind="poisson"), "arrivals: rate is missing."),
    (arrivals(kind="steps", steps=[]), "arrivals.steps: expected array of length >= 1."),
    (
        arrivals(kind="steps", steps=[{"rate": 1, "duration": 3}]),
        "unknown key arrivals.steps[0].duration; did you mean duration_s?",
    ),
    (
        arrivals(kind="ramp", from_rate=1, to_rate=5, ramp_s=3, process="gama"),
        'arrivals.process = "gama" is unknown; did you mean gamma?',
    ),
    (kind(share="5%"), "kinds[0].share: expected a number, got a text."),
    (kind(share=0), "kinds[0].share: expected a number above 0."),
    (kind(input_tokens=0), "kinds[0].input_tokens: expected a whole number of at least 1."),
    (
        kind(input_tokens=2.5),
        "kinds[0].input_tokens: expected a whole number or a table, got a number.",
    ),
    (
        kind(input_tokens={"mean": 3}),
        (
            "kinds[0].input_tokens.distribution is missing; "
            "one of uniform, lognormal, exponential, file."
        ),
    ),
    (
        kind(input_tokens={"distribution": "lognorm", "mean": 3}),
        'kinds[0].input_tokens.distribution = "lognorm" is unknown; did you mean lognormal?',
    ),
    (
        kind(disconnect={"share": 1.5}),
        "kinds[0].disconnect.share: expected a number of at most 1.",
    ),
    (kind(input_token=3), "unknown key kinds[0].input_token; did you mean input_tokens?"),
    (kind(language="zhh"), 'kinds[0].language = "zhh" is unknown; did you mean zh?'),
    ({"kinds": "light"}, "kinds: expected a list, got a text."),
    ({"arrivals": 5}, "arrivals: expected a table, got a whole number."),
    ({"closed_lop": {}}, "unknown key closed_lop; did you mean closed_loop?"),
    ({"closed_loop": {"users": 0}}, "closed_loop.users: expected a whole number of at least 1."),
    ({"tenants": [{"share": 3}]}, "tenants[0]: name is missing."),
]


@pytest.mark.parametrize(("values", "sentence"), WRONG)
def test_what_is_wrong_is_said_with_its_key(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        convert(values, WorkloadSpec, "w.toml")
    assert caught.value.message == f"w.toml: {sentence}"


def test_an_unknown_key_like_no_other_lists_what_there_is() -> None:
    with pytest.raises(ConfigError) as caught:
        convert(kind(xyzzy=1), WorkloadSpec, "w.toml")
    assert caught.value.message.startswith(
        "w.toml: unknown key kinds[0].xyzzy; known here: conversation, deadline_s, "
    )


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text('[arrivals]\nkind = "poisson"\nrate = 5\n')
    (tmp_path / "w.json").write_text('{"arrivals": {"kind": "poisson", "rate": 5}}')
    assert read_values(tmp_path / "w.toml") == read_values(tmp_path / "w.json")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("w.toml", b"rate = ", "w.toml is not valid TOML"),
        ("w.toml", b"\xff\xfe", "w.toml is not UTF-8 text"),
        ("w.json", b"{", "w.json is not valid JSON"),
        ("w.json", b"[1]", "w.json is not valid JSON"),
        ("w.json", b'{"a":' * 200_000, "w.json is not valid JSON"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        read_values(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"w\.toml does not exist; check the name"):
        read_values(tmp_path / "w.toml")
    with pytest.raises(ConfigError, match="cannot read"):
        read_values(tmp_path)
