"""Ready mixes by name, and workloads from a few command-line options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.decoding import convert, nearest
from forebay.lab.workload.distributions import LogNormal
from forebay.lab.workload.kinds import Conversation, Documents, Kind
from forebay.lab.workload.plan import Workload, WorkloadSpec

DEFAULT_RATE = 200.0
DEFAULT_DURATION_S = 60.0

# F1.1: an FAQ is 2 tokens in and 10 out, a report analysis 8,000 in and 2,000 out.
_FAQ = Kind(name="faq", input_tokens=2, output_tokens=10, deadline_s=2.0)
_LIGHT = Kind(
    name="light",
    input_tokens=LogNormal(mean=24, cv=0.5, min=2, max=200),
    output_tokens=LogNormal(mean=32, cv=0.5, min=4, max=128),
    deadline_s=2.0,
)
_SUMMARY = Kind(
    name="summary",
    input_tokens=LogNormal(mean=1_000, cv=0.5, min=100, max=4_000),
    output_tokens=LogNormal(mean=200, cv=0.5, min=20, max=800),
    deadline_s=20.0,
)
_HEAVY = Kind(name="heavy", input_tokens=8_000, output_tokens=2_000, deadline_s=60.0)
_RAG = Kind(
    name="rag",
    input_tokens=LogNormal(mean=24, cv=0.5, min=2, max=200),
    output_tokens=LogNormal(mean=160, cv=0.6, min=10, max=512),
    system_prompt_tokens=256,
    documents=Documents(count=5_000, tokens=256, zipf=1.0, per_request=4),
    deadline_s=10.0,
)
_CHAT = Kind(
    name="chat",
    input_tokens=LogNormal(mean=40, cv=0.8, min=2, max=400),
    output_tokens=LogNormal(mean=150, cv=0.6, min=10, max=512),
    input_cap_tokens=6_000,
    system_prompt_tokens=256,
    conversation=Conversation(
        turns=LogNormal(mean=4, cv=0.7, min=1, max=20),
        think_s=LogNormal(mean=10, cv=1.0, min=0.5, max=120),
    ),
    deadline_s=10.0,
)


def _shared(shares: dict[Kind, float]) -> tuple[Kind, ...]:
    return tuple(msgspec.structs.replace(kind, share=share) for kind, share in shares.items())


PRESETS: dict[str, tuple[Kind, ...]] = {
    "faq": (_FAQ,),
    "light": (_LIGHT,),
    "heavy": (_HEAVY,),
    "mixed": _shared({_LIGHT: 80, _SUMMARY: 18, _HEAVY: 2}),
    "rag": (_RAG,),
    "chat": (_CHAT,),
}
_HEAVY_SHARE = re.compile(r"heavy(\d{1,2}(?:\.\d+)?)")
# The exam is a course of time as well as a mix.
EXAM = "exam"


def preset_names() -> list[str]:
    """What a user may name; ``heavyN`` stands for every share of heavy requests."""
    return [*PRESETS, "heavy5", EXAM]


def preset_kinds(name: str) -> tuple[Kind, ...]:
    """The kinds of a named mix; ``heavy5`` is ``light`` with 5 % ``heavy``, and so on."""
    share = _HEAVY_SHARE.fullmatch(name)
    if share and 0 < float(share.group(1)) < 100:
        heavy = float(share.group(1))
        return _shared({_LIGHT: 100 - heavy, _HEAVY: heavy})
    if name == EXAM:
        return PRESETS["mixed"]
    if name not in PRESETS:
        raise ConfigError(f'no mix is named "{name}"; {nearest(name, preset_names())}')
    return PRESETS[name]


class SimpleWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """The few options that need no workload file.

    ``arrivals`` is constant, poisson or gamma, at ``rate`` requests/s; ``users`` makes it a
    closed loop instead, and ``trace`` a replay whose requests are the trace's own. With
    ``queries`` the mix's questions come from that file. ``mix`` "exam" brings its own arrivals.
    """

    mix: str = "light"
    arrivals: str = "poisson"
    rate: float | None = None
    cv: float | None = None
    duration_s: float | None = None
    count: int | None = None
    users: int | None = None
    think_s: float | None = None
    trace: str | None = None
    time_scale: float | None = None
    rate_scale: float | None = None
    queries: str | None = None
    zipf: float | None = None
    deadline_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


def simple_workload(options: SimpleWorkload, folder: Path = Path()) -> Workload:
    """Build a workload from options; raises ``ConfigError`` for what does not fit together."""
    values: dict[str, Any] = {"name": options.mix}
    _refuse_strays(options)
    ends = _given(duration_s=options.duration_s, count=options.count)
    if options.users is not None:
        values["closed_loop"] = {
            **_given(users=options.users, think_s=options.think_s), **(ends or _default_end()),
        }  # fmt: skip
    elif options.trace is not None:
        scales = _given(time_scale=options.time_scale, rate_scale=options.rate_scale)
        values["arrivals"] = {"kind": "trace", "file": options.trace, **scales, **ends}
        values["name"] = Path(options.trace).name
    elif options.mix == EXAM and options.rate is None:
        values["arrivals"] = {"kind": "pulse", **ends}
    else:
        rate = DEFAULT_RATE if options.rate is None else options.rate
        values["arrivals"] = {
            "kind": options.arrivals, "rate": rate, **_given(cv=options.cv),
            **(ends or _default_end()),
        }  # fmt: skip
    if options.trace is None:
        values["kinds"] = [_changed(kind, options) for kind in preset_kinds(options.mix)]
    return Workload(convert(values, WorkloadSpec, "workload options"), folder)


def preset_workload(
    name: str, rate: float | None = None, duration_s: float | None = None
) -> Workload:
    """A named mix: Poisson at ``rate`` (200/s) for ``duration_s`` (60 s), or F1.13's pulse."""
    return simple_workload(SimpleWorkload(mix=name, rate=rate, duration_s=duration_s))


def _changed(kind: Kind, options: SimpleWorkload) -> dict[str, Any]:
    """The kind's values with what the options say instead."""
    values: dict[str, Any] = msgspec.to_builtins(kind)
    values |= _given(
        deadline_s=options.deadline_s,
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
    )
    if options.queries is not None:
        values["queries"] = {"file": options.queries, "zipf": options.zipf}
        # The file's questions are as long as they are.
        if options.input_tokens is None:
            values["input_tokens"] = None
    return values


def _refuse_strays(options: SimpleWorkload) -> None:
    """An option that would be ignored is a mistake, not a wish."""
    needs = {
        "think_s": ("users", options.think_s, options.users),
        "time_scale": ("trace", options.time_scale, options.trace),
        "rate_scale": ("trace", options.rate_scale, options.trace),
        "zipf": ("queries", options.zipf, options.queries),
    }
    for name, (needed, value, there) in needs.items():
        if value is not None and there is None:
            raise ConfigError(f"{name} has no meaning without {needed}: give both or neither.")
    if options.users is not None and options.rate is not None:
        raise ConfigError(
            "rate and users exclude each other: users ask as fast as they are served."
        )
    if options.trace is not None and (options.rate is not None or options.users is not None):
        raise ConfigError("a trace brings its own rate: use rate_scale to change it.")


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _default_end() -> dict[str, Any]:
    return {"duration_s": DEFAULT_DURATION_S}
