"""Workloads: read from a TOML or JSON file, or built from a mix's name, a rate and a duration."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.arrivals import (
    ConstantArrivals,
    Count,
    GammaArrivals,
    PoissonArrivals,
    PositiveSeconds,
    PulseArrivals,
    RampArrivals,
    StepArrivals,
)
from forebay.lab.workload.decoding import convert, read_values
from forebay.lab.workload.distributions import Amount, sampler, unreadable
from forebay.lab.workload.generate import Parts, Run, bounded
from forebay.lab.workload.kinds import Kind, KindSource, Tenant, Tenants
from forebay.lab.workload.request import PlannedRequest
from forebay.lab.workload.sessions import Message
from forebay.lab.workload.text import TextMaker, mixed
from forebay.lab.workload.tokens import count_tokens
from forebay.lab.workload.traces import TraceArrivals, check_trace

ArrivalSpec = (
    ConstantArrivals
    | PoissonArrivals
    | GammaArrivals
    | StepArrivals
    | RampArrivals
    | PulseArrivals
    | TraceArrivals
)
# Raised when the same file and seed begin to give other requests.
GENERATION = 1
_READ_BYTES = 1 << 20


class ClosedLoop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``users`` who each wait for their answer, think for ``think_s`` seconds and ask again."""

    users: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    think_s: Amount = 0.0
    duration_s: PositiveSeconds | None = None
    count: Count | None = None

    def thinking_s(self, seed: int, folder: Path = Path()) -> Iterator[float]:
        """Pauses before each next question, in the order in which users become free."""
        draw = sampler(self.think_s, "closed_loop.think_s", folder)
        rng = np.random.default_rng([seed, 1])
        while True:
            yield from draw(rng, 1024).tolist()


class WorkloadSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a workload file says."""

    name: Annotated[str, msgspec.Meta(max_length=128)] = ""
    description: str = ""
    arrivals: ArrivalSpec | None = None
    closed_loop: ClosedLoop | None = None
    kinds: tuple[Kind, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    prefix_block_tokens: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 16


class Workload:
    """A workload ready to run: files read, contradictions refused.

    Raises ``ConfigError`` when built from a spec that cannot run; ``folder`` is that of relative
    file names.
    """

    def __init__(self, spec: WorkloadSpec, folder: Path = Path()) -> None:
        _check(spec)
        self.spec = spec
        self.folder = folder
        self.name = spec.name or "unnamed"
        self.closed_loop = spec.closed_loop
        kinds = spec.kinds or (Kind(name="trace"),)
        block = spec.prefix_block_tokens
        sources = [KindSource(kind, place, folder, block) for place, kind in enumerate(kinds)]
        if not (isinstance(spec.arrivals, TraceArrivals) and spec.arrivals.use == "all"):
            for source in sources:
                _check_content(source)
        self._parts = Parts(
            sources, Tenants(spec.tenants, folder), folder, block, keeps_names=not spec.kinds
        )
        self._languages = {kind.name: kind.language for kind in kinds}
        self._makers = lru_cache(maxsize=None)(TextMaker)
        self._bounds = spec.arrivals or spec.closed_loop
        if isinstance(spec.arrivals, TraceArrivals):
            check_trace(spec.arrivals, folder)
        elif spec.arrivals is not None:
            spec.arrivals.arrivals()

    @property
    def duration_s(self) -> float | None:
        """How long requests arrive, where the file says so."""
        return self._bounds.duration_s if self._bounds is not None else None

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that stand for all that decides about the requests but the seed.

        Contents of files count, not their names; API keys do not.
        """
        return _fingerprint(self.spec, self.folder)

    def requests(self, seed: int) -> Iterator[PlannedRequest]:
        """The requests in time order, the same for the same seed; memory does not grow.

        Raises ``ConfigError`` on the way when a trace turns out to be malformed.
        """
        run, arrivals = Run(self._parts, seed), self.spec.arrivals
        match arrivals:
            case None:
                requests = run.waiting()
            case TraceArrivals(use="all"):
                requests = run.replayed(arrivals)
            case TraceArrivals():
                requests = run.replayed_times(arrivals)
            case _:
                requests = run.scheduled(arrivals.arrivals())
        bounds = self._bounds
        assert bounds is not None
        limit_s = math.inf if bounds.duration_s is None else bounds.duration_s
        return bounded(requests, limit_s, bounds.count)

    def materialise(self, request: PlannedRequest, seed: int = 0) -> tuple[Message, ...]:
        """The chat messages of this turn, exactly as long as planned; equal for equal arguments.

        Of a conversation's later turns this is the new question alone: ``Transcripts`` puts what
        was said before it. Questions made up for different seeds differ, shared blocks do not.
        """
        maker = self._makers(self._languages.get(request.kind, "en"))
        if request.turn:
            asked = request.input_tokens - request.history_tokens
            return ({"role": "user", "content": _question(maker, request, asked, seed)},)
        block = request.prefix_block_tokens
        shared = [number for number in request.prefix if number >= 0]
        before = min(len(shared) * block, request.input_tokens)
        rest = request.input_tokens - before
        if not rest:
            text = maker.blocks(shared, block, before)
            return ({"role": "user", "content": text},)
        question = _question(maker, request, rest, seed)
        if not before:
            return ({"role": "user", "content": question},)
        context = maker.blocks(shared, block, before)
        return ({"role": "system", "content": context}, {"role": "user", "content": question})


def _question(maker: TextMaker, request: PlannedRequest, tokens: int, seed: int) -> str:
    number = mixed(seed) ^ request.index
    if not request.text:
        return maker.text(number, tokens)
    missing = tokens - count_tokens(request.text)
    if missing <= 0:
        return request.text
    return f"{request.text}\n{maker.text(number, missing)}"


def read_workload(path: Path) -> Workload:
    """Read a ``.toml`` or ``.json`` workload file; relative names in it start at its folder.

    Raises ``ConfigError`` with one sentence that names the file and the key.
    """
    spec = convert(read_values(path), WorkloadSpec, path.name)
    if not spec.name:
        spec = msgspec.structs.replace(spec, name=path.stem)
    try:
        return Workload(spec, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error.message}", param=error.param) from error


def _check(spec: WorkloadSpec) -> None:
    if spec.arrivals is None and spec.closed_loop is None:
        raise ConfigError(
            "nothing says when requests come: add [arrivals] with a kind and a rate, "
            "or [closed_loop] with users."
        )
    if spec.arrivals is not None and spec.closed_loop is not None:
        raise ConfigError("arrivals and closed_loop exclude each other: remove one of them.")
    replayed = isinstance(spec.arrivals, TraceArrivals) and spec.arrivals.use == "all"
    if not spec.kinds and not replayed:
        raise ConfigError("nothing says what is asked: add at least one [[kinds]].")
    for what, names in (
        ("kinds", [kind.name for kind in spec.kinds]),
        ("tenants", [tenant.name for tenant in spec.tenants]),
    ):
        name, times = Counter(names).most_common(1)[0] if names else ("", 0)
        if times > 1:
            raise ConfigError(f"two {what} are named {name}: give each a name of its own.")
    for kind in spec.kinds:
        if kind.conversation is not None and (replayed or spec.closed_loop is not None):
            raise ConfigError(
                f"kind {kind.name}: a conversation needs arrivals that start it; "
                f"it fits neither closed_loop nor a replay of whole requests."
            )


def _check_content(source: KindSource) -> None:
    if not source.makes_content:
        raise ConfigError(
            f"kind {source.kind.name} says nothing of its questions: give input_tokens or queries."
        )


def _fingerprint(spec: WorkloadSpec, folder: Path) -> str:
    values = msgspec.to_builtins(spec)
    for cosmetic in ("name", "description"):
        values.pop(cosmetic, None)
    content = _without_places(values, _hasher(folder))
    data = msgspec.json.encode([GENERATION, content], order="deterministic")
    return hashlib.sha256(data).hexdigest()[:16]


def _without_places(value: Any, hashed: Callable[[str], str]) -> Any:
    """What decides about the requests: contents of files, not their names; no keys."""
    if isinstance(value, Mapping):
        return {
            name: hashed(item) if name == "file" else _without_places(item, hashed)
            for name, item in value.items()
            if name not in ("key", "key_file")
        }
    if isinstance(value, list | tuple):
        return [_without_places(item, hashed) for item in value]
    return value


def _hasher(folder: Path) -> Callable[[str], str]:
    def hashed(name: str) -> str:
        digest = hashlib.sha256()
        try:
            with (folder / name).open("rb") as handle:
                while part := handle.read(_READ_BYTES):
                    digest.update(part)
        except OSError as error:
            raise unreadable(folder / name, error) from error
        return digest.hexdigest()

    return hashed
