"""What a search may change: a list of typed parameters that each name a settings path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from forebay.kernel.errors import ConfigError

_IVFPQ_CHUNKS = 39 * 256
"""FAISS wants 39 vectors for each of the 256 codes of a sub-vector."""

Value = bool | int | float | str
Values = Mapping[str, Value]
"""Settings path to value."""


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter means something only where another one, listed before it, has a value.

    ``other``: where that one has any value but this.
    """

    path: str
    value: Value
    other: bool = False


class Choice(msgspec.Struct, frozen=True, tag="choice", forbid_unknown_fields=True):
    """One of a few values."""

    path: str
    values: tuple[Value, ...]
    when: When | None = None

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) != len(self.values):
            raise ValueError(f"{self.path} needs values that differ")


class Whole(msgspec.Struct, frozen=True, tag="whole", forbid_unknown_fields=True):
    """A whole number between bounds, both included; ``log``: ratios count, not differences."""

    path: str
    low: int
    high: int
    log: bool = False
    when: When | None = None

    def __post_init__(self) -> None:
        _check_bounds(self.path, self.low, self.high, log=self.log)


class Real(msgspec.Struct, frozen=True, tag="real", forbid_unknown_fields=True):
    """A number between bounds, both included; ``step`` keeps it readable."""

    path: str
    low: float
    high: float
    step: float | None = None
    log: bool = False
    when: When | None = None

    def __post_init__(self) -> None:
        _check_bounds(self.path, self.low, self.high, log=self.log)
        if self.step is not None and (self.step <= 0 or self.log):
            raise ValueError(f"{self.path}: a step is positive, and none goes with log")


Parameter = Choice | Whole | Real


class SpaceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A space as a file says it: ``[[parameters]]`` with ``type``, ``path`` and bounds."""

    parameters: tuple[Parameter, ...]


class Suggester(Protocol):
    """Draws values; an Optuna trial is one."""

    def suggest_categorical(self, name: str, choices: Sequence[Value]) -> Value:
        """One of ``choices``."""
        ...

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """A whole number from ``low`` to ``high``."""
        ...

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number from ``low`` to ``high``."""
        ...


def _check_bounds(path: str, low: float, high: float, *, log: bool) -> None:
    if not low < high:
        raise ValueError(f"{path}: low must be below high")
    if log and low <= 0:
        raise ValueError(f"{path}: with log, low must be above 0")


def check_space(parameters: Sequence[Parameter]) -> None:
    """``ConfigError`` when a path comes twice or a condition looks at what is not before it."""
    before: set[str] = set()
    for parameter in parameters:
        if parameter.path in before:
            raise ConfigError(f"the search space names {parameter.path} twice; keep one.")
        if parameter.when is not None and parameter.when.path not in before:
            raise ConfigError(
                f"{parameter.path} depends on {parameter.when.path}, which must stand before it."
            )
        before.add(parameter.path)


def suggest(parameters: Iterable[Parameter], source: Suggester) -> dict[str, Value]:
    """Draw a value for every parameter that means something beside those before it."""
    found: dict[str, Value] = {}
    for parameter in parameters:
        if not applies(parameter, found):
            continue
        match parameter:
            case Choice(path, values):
                found[path] = source.suggest_categorical(path, values)
            case Whole(path, low, high, log):
                found[path] = source.suggest_int(path, low, high, log=log)
            case Real(path, low, high, step, log):
                drawn = source.suggest_float(path, low, high, step=step, log=log)
                # Steps are sums of floats: what is written into a file should be a short number.
                found[path] = round(drawn, 6)
    return found


def applies(parameter: Parameter, values: Values) -> bool:
    """Whether a parameter means something where ``values`` hold."""
    when = parameter.when
    return when is None or (values.get(when.path) == when.value) != when.other


def within(parameters: Iterable[Parameter], values: Values) -> dict[str, Value]:
    """What of ``values`` the space could have drawn: a start for the search."""
    found: dict[str, Value] = {}
    for parameter in parameters:
        value = values.get(parameter.path)
        if value is None or not applies(parameter, found):
            continue
        if isinstance(parameter, Choice):
            fits = value in parameter.values
        else:
            fits = isinstance(value, int | float) and parameter.low <= value <= parameter.high
        if fits:
            found[parameter.path] = value
    return found


class Corpus(msgspec.Struct, frozen=True):
    """What decides which parameters can matter: size, and whether texts can be cut anew."""

    chunks: int
    exact_rows_max: int
    headings_hidden: bool = False
    embedded: bool = True
    rerankers: tuple[str, ...] = ()
    """Values of ``rerank.backend`` that can be had; none: nothing is ordered anew."""


def default_space(corpus: Corpus) -> tuple[Parameter, ...]:
    """The retrieval settings worth trying on a corpus.

    Index parameters only from ``exact_rows_max`` chunks on: below, every segment is scanned
    exactly whatever they say. Bounds: HNSW M and ef from F3.5, IVF-PQ from F2.8, early exit
    around F2.10's 0.92, chunk sizes around F3.10's 512, overlap by F4.6.
    """
    words: list[Parameter] = [
        Choice("ingest.chunks.max_tokens", (128, 192, 256, 384, 512)),
        Choice("ingest.chunks.overlap_tokens", (0, 32, 64)),
        Whole("retrieval.candidates", 10, 100, log=True),
    ]
    if not corpus.headings_hidden:
        words.append(Choice("retrieval.lexical.heading_repeats", (0, 1, 2, 4)))
    if not corpus.embedded:
        return tuple(words)
    index = index_space(corpus.chunks) if corpus.chunks >= corpus.exact_rows_max else ()
    return (*words, *index, *fusion_space(), *rerank_space(corpus.rerankers))


def rerank_space(backends: Sequence[str]) -> tuple[Parameter, ...]:
    """Whether hits are ordered anew, and how many of them."""
    if len(backends) < 2:
        return ()
    backend = "rerank.backend"
    return (
        Choice(backend, tuple(backends)),
        Whole("rerank.candidates", 20, 100, log=True, when=When(backend, "off", other=True)),
    )


def index_space(chunks: int) -> tuple[Parameter, ...]:
    """Kind of index and its parameters; IVF-PQ from so many chunks on that it can be trained."""
    kind = "retrieval.vector.kind"
    hnsw, ivfpq = When(kind, "hnsw"), When(kind, "ivfpq")
    graph: tuple[Parameter, ...] = (
        Choice("retrieval.vector.hnsw_m", (8, 16, 32, 64), hnsw),
        Choice("retrieval.vector.hnsw_ef_construction", (80, 120, 200), hnsw),
        Whole("retrieval.vector.hnsw_ef_search", 16, 256, log=True, when=hnsw),
    )
    if chunks < _IVFPQ_CHUNKS:
        return (Choice(kind, ("exact", "hnsw")), *graph)
    return (
        Choice(kind, ("exact", "hnsw", "ivfpq")),
        *graph,
        Choice("retrieval.vector.ivfpq_lists", (64, 256, 1024, 4096), ivfpq),
        Choice("retrieval.vector.ivfpq_parts", (16, 32, 48, 96), ivfpq),
        Whole("retrieval.vector.ivfpq_nprobe", 2, 128, log=True, when=ivfpq),
        Choice("retrieval.vector.ivfpq_refine", (2, 4, 8, 16), ivfpq),
    )


def fusion_space() -> tuple[Parameter, ...]:
    """How the legs are weighed, and when words alone are enough."""
    fusion = "retrieval.fusion"
    return (
        Real("retrieval.early_exit_confidence", 0.5, 1.0, step=0.02),
        Real(f"{fusion}.ceiling", 0.3, 0.9, step=0.05),
        Real(f"{fusion}.known_middle", 0.2, 0.6, step=0.05),
        Real(f"{fusion}.overlap", 0.0, 1.0, step=0.1),
        Real(f"{fusion}.agreement", 0.0, 0.4, step=0.05),
        Real(f"{fusion}.foreign_words", 0.0, 1.0, step=0.1),
    )
