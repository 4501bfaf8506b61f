"""The load that a command is told of: a workload file, or a few words on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from forebay.app.words import Words
from forebay.kernel.errors import ConfigError
from forebay.lab.workload.plan import Workload, WorkloadSpec, read_workload
from forebay.lab.workload.presets import EXAM, SimpleWorkload, simple_workload

RATE_PER_S = 10.0
DURATION_S = 30.0
ANSWER_TOKENS = 512
"""What nobody said: gentle enough for any endpoint, and room for whole answers."""


class LoadWords(Words, frozen=True, kw_only=True):
    """What the command line says of the load; None is what it does not say."""

    workload: Path | None = None
    mix: str | None = None
    queries: Path | None = None
    zipf: float | None = None
    trace: Path | None = None
    time_scale: float | None = None
    rate_scale: float | None = None
    arrivals: str | None = None
    rate: float | None = None
    users: int | None = None
    think: float | None = None
    duration: float | None = None
    count: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    deadline: float | None = None


REPLACED = ("rate", "duration", "count")
"""What the command line may say beside a workload file, in the place of what the file says."""


def build_load(words: LoadWords) -> Workload:
    """The workload; ``ConfigError`` when the words contradict each other or the file is wrong."""
    given = {name: value for name, value in _values(words).items() if value is not None}
    if words.workload is None:
        return _simple(given)
    for name in given:
        if name not in REPLACED and name != "workload":
            option = name.replace("_", "-")
            raise ConfigError(
                f"--{option} and --workload exclude each other: write it in the file."
            )
    read = read_workload(words.workload)
    if len(given) == 1:
        return read
    return Workload(_changed(read.spec, words, words.workload.name), read.folder)


def _values(words: LoadWords) -> dict[str, Any]:
    return {name: getattr(words, name) for name in LoadWords.__struct_fields__}


def _simple(given: dict[str, Any]) -> Workload:
    names = {"think": "think_s", "duration": "duration_s", "deadline": "deadline_s"}
    options: dict[str, Any] = {
        names.get(name, name): str(value) if isinstance(value, Path) else value
        for name, value in given.items()
    }
    if not given.keys() & {"users", "trace", "rate"} and given.get("mix") != EXAM:
        options["rate"] = RATE_PER_S
    if not given.keys() & {"duration", "count", "trace"} and given.get("mix") != EXAM:
        options["duration_s"] = DURATION_S
    built = simple_workload(SimpleWorkload(**options))
    if "queries" not in given or "mix" in given:
        return built
    # Nobody named a mix: neither its lengths nor its deadline are what real questions want.
    (kind,) = built.spec.kinds
    asked = msgspec.structs.replace(
        kind,
        name="query",
        output_tokens=given.get("output_tokens", ANSWER_TOKENS),
        deadline_s=given.get("deadline"),
    )
    spec = msgspec.structs.replace(built.spec, name="queries", kinds=(asked,))
    return Workload(spec, built.folder)


def _changed(spec: WorkloadSpec, words: LoadWords, name: str) -> WorkloadSpec:
    """The spec with the rate and the end that the command line gives."""
    bounds = {"duration_s": words.duration, "count": words.count}
    changes: dict[str, Any] = {key: value for key, value in bounds.items() if value is not None}
    if spec.closed_loop is not None:
        if words.rate is not None:
            raise ConfigError(f"--rate: {name} is a closed loop, whose rate its answers decide.")
        loop = msgspec.structs.replace(spec.closed_loop, **changes)
        return _checked(msgspec.structs.replace(spec, closed_loop=loop))
    if words.rate is not None:
        if not hasattr(spec.arrivals, "rate"):
            raise ConfigError(f"--rate: {name} has no single rate that it could replace.")
        changes["rate"] = words.rate
    assert spec.arrivals is not None
    arrivals = msgspec.structs.replace(spec.arrivals, **changes)
    return _checked(msgspec.structs.replace(spec, arrivals=arrivals))


def _checked(spec: WorkloadSpec) -> WorkloadSpec:
    """The same after the bounds of a workload file, which building a struct does not check."""
    try:
        return msgspec.convert(msgspec.to_builtins(spec), WorkloadSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the load cannot be run: {error}.") from error
