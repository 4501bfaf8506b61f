"""What ``forebay doctor`` says of rerankers, the query classifier and the fragility watch.

Nothing is embedded and no embedder is loaded: whose vectors a model has to fit is what the store's
knowledge bases say, and for the built-in embedder what the shipped classifier was made for.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from forebay.app.bearer_keys import bearer_key
from forebay.app.settings import Settings
from forebay.kernel.errors import ConfigError, ForebayError
from forebay.kernel.stages import EmbedderSpec
from forebay.query.classifier import KindClassifier
from forebay.rerank.cross_encoder import CrossEncoder
from forebay.rerank.late_head import LateHead
from forebay.rerank.light import LightModel
from forebay.rerank.settings import EndpointSettings
from forebay.retrieval.spread import LEAST_CHUNKS, SpreadCalibration
from forebay.store import StoreReader

PROBE_S = 1.0
Status = Literal["ok", "note", "missing"]


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at; ``remedy`` says how to get what is missing."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


class Vectors(msgspec.Struct, frozen=True):
    """Whose vectors a model has to fit, as far as that is known without an embedder."""

    fingerprint: str = ""
    dimensions: int = 0

    def misfit(self, fingerprint: str, dimensions: int) -> str:
        """Why a model made for others does not fit; empty: it fits, or nobody can tell."""
        if self.dimensions and dimensions != self.dimensions:
            return f"reads vectors of {dimensions} numbers, the embedder gives {self.dimensions}"
        if self.fingerprint and fingerprint != self.fingerprint:
            return "was made for another embedder"
        return ""


def examine_ranking(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at everything that reads what a search found."""
    kbs = stored(Path(settings.store.path))
    vectors = vectors_of(settings, kbs)
    yield from _reranking(settings, vectors, environ)
    yield _classifier(settings, vectors)
    yield from _fragility(settings, kbs)


def stored(folder: Path) -> dict[str, tuple[int, EmbedderSpec | None]]:
    """Of each knowledge base in the store: chunks with a vector, and whose; empty without one."""
    if not folder.exists():
        return {}
    try:
        reader = StoreReader(folder)
        try:
            return {info.name: (info.embedded_chunks, _spec(reader, info.name))
                    for info in reader.kbs()}  # fmt: skip
        finally:
            reader.close()
    except ForebayError:
        # What is wrong with a store is said by whoever opens it to serve.
        return {}


def _spec(reader: StoreReader, kb: str) -> EmbedderSpec | None:
    state = reader.embedder(kb)
    return None if state is None else state.spec


def vectors_of(settings: Settings, kbs: Mapping[str, tuple[int, EmbedderSpec | None]]) -> Vectors:
    """What is known of the configured embedder's vectors."""
    embedding = settings.embedding
    if embedding.backend == "none":
        return Vectors()
    if embedding.backend == "e5" and embedding.center_languages:
        shipped = KindClassifier.shipped()
        return Vectors(shipped.fingerprint, shipped.dimensions)
    specs = {spec for _, spec in kbs.values() if spec is not None}
    if len(specs) == 1:
        [spec] = specs
        # What is asked for now may be another embedder than the one that filled the store.
        if embedding.dimensions in (0, spec.dimensions):
            return Vectors(spec.fingerprint, spec.dimensions)
    return Vectors("", embedding.dimensions)


def _reranking(
    settings: Settings, vectors: Vectors, environ: Mapping[str, str]
) -> Iterator[Finding]:
    backend, path = settings.rerank.backend, settings.rerank.light.path
    if backend == "off":
        yield Finding("rerank", "ok", "off: hits keep the order of the search")
        return
    if settings.embedding.backend == "none":
        yield _wrong(
            "rerank",
            f"backend {backend} orders by vectors, and embedding.backend is none",
            "choose an embedder, or set rerank.backend to off.",
            needed=backend != "auto",
        )
        return
    try:
        model = LightModel.read(Path(path)) if path else LightModel.shipped()
    except ConfigError as error:
        remedy = "train one with `forebay distill` and name it in rerank.light.path."
        yield _wrong("rerank", error.message, remedy)
        return
    misfit = vectors.misfit(model.info.embedder, model.info.dimensions)
    if misfit:
        yield _wrong(
            "rerank",
            f"the light model {misfit}",
            "train one with `forebay distill` and name it in rerank.light.path.",
            needed=backend != "auto" or bool(path),
        )
    else:
        yield Finding("rerank", "ok", f"backend {backend}, {path or 'the shipped light model'}")
    if backend == "cascade":
        yield _dear(settings, vectors, environ)


def _dear(settings: Settings, vectors: Vectors, environ: Mapping[str, str]) -> Finding:
    dear = settings.rerank.dear
    name = f"rerank, {dear.backend}"
    look: dict[str, Callable[[], Finding]] = {
        "endpoint": lambda: _endpoint(name, dear.endpoint, environ),
        "onnx": lambda: _folder(name, settings),
        "late": lambda: _late(name, settings, vectors),
        "sentences": lambda: Finding(name, "ok", "the embedder reads every sentence"),
    }
    return look[dear.backend]()


def _endpoint(name: str, endpoint: EndpointSettings, environ: Mapping[str, str]) -> Finding:
    if not endpoint.base_url:
        return _wrong(name, "no endpoint is named", "set rerank.dear.endpoint.base_url.")
    try:
        bearer_key(endpoint, "rerank.dear.endpoint", environ)
    except ConfigError as error:
        return _wrong(name, error.message, "give the key, or name none.")
    remedy = "start it or correct rerank.dear.endpoint.base_url; else the light order stands."
    return knock(name, endpoint.base_url, remedy)


def knock(name: str, url: str, remedy: str) -> Finding:
    """Whether something takes connections at an address; blocks for ``PROBE_S`` at most."""
    try:
        where = urlsplit(url)
        port = where.port or (443 if where.scheme == "https" else 80)
        host = where.hostname or ""
    except ValueError:
        host, port = "", 0
    if not host or where.scheme not in ("http", "https"):
        return _wrong(name, f"{url} is no address", "write it as https://host/v1.")
    try:
        with socket.create_connection((host, port), timeout=PROBE_S):
            return Finding(name, "ok", f"{host}:{port} answers")
    except OSError:
        return Finding(name, "note", f"{host}:{port} cannot be reached from here", remedy)


def _folder(name: str, settings: Settings) -> Finding:
    onnx = settings.rerank.dear.onnx
    if not onnx.path:
        return _wrong(name, "no folder is named", "set rerank.dear.onnx.path.")
    try:
        CrossEncoder(onnx)
    except ConfigError as error:
        return _wrong(
            name, error.message, "put an ONNX cross-encoder and its tokenizer.json there."
        )
    return Finding(name, "ok", f"the cross-encoder in {onnx.path} can be loaded")


def _late(name: str, settings: Settings, vectors: Vectors) -> Finding:
    if settings.embedding.backend not in ("e5", "onnx"):
        return _wrong(
            name,
            f"embedding.backend {settings.embedding.backend} gives no states of single tokens",
            "use the built-in embedder or a model folder, or another rerank.dear.backend.",
        )
    path = settings.rerank.dear.late.path
    try:
        head = LateHead(Path(path)) if path else LateHead.shipped()
    except ConfigError as error:
        return _wrong(name, error.message, "correct rerank.dear.late.path, or leave it empty.")
    if vectors.dimensions and head.info.inputs != vectors.dimensions:
        return _wrong(
            name,
            f"the head reads states of {head.info.inputs} numbers, the embedder gives "
            f"{vectors.dimensions}",
            "train a head for this embedder and name it in rerank.dear.late.path.",
        )
    return Finding(name, "ok", f"late interaction by {path or 'the shipped head'}")


def _classifier(settings: Settings, vectors: Vectors) -> Finding:
    name, path = "query classifier", settings.query.classifier_path
    if not settings.query.enabled:
        return Finding(name, "ok", "off: questions are searched as they are")
    if settings.embedding.backend == "none":
        return Finding(name, "ok", "rules alone: there are no vectors to read")
    try:
        found = KindClassifier.load(Path(path)) if path else KindClassifier.shipped()
    except ConfigError as error:
        return _wrong(name, error.message, "correct query.classifier_path, or leave it empty.")
    misfit = vectors.misfit(found.fingerprint, found.dimensions)
    if misfit or (not vectors.fingerprint and not path):
        return _wrong(
            name,
            f"the classifier {misfit}" if misfit else "nobody knows whether it fits the embedder",
            "make one with tools/train_kinds.py and name it in query.classifier_path.",
            needed=bool(path),
        )
    return Finding(name, "ok", path or "the one for the built-in embedder")


def _fragility(
    settings: Settings, kbs: Mapping[str, tuple[int, EmbedderSpec | None]]
) -> Iterator[Finding]:
    if not settings.fragility.enabled:
        yield Finding("fragility", "ok", "off: searches are not watched")
        return
    if settings.embedding.backend == "none":
        yield _wrong(
            "fragility",
            "without an embedder nobody can tell how alike hits are",
            "choose an embedder; the other two signs are watched.",
            needed=False,
        )
        return
    folder = Path(settings.store.path) / "calibration"
    for kb, (rows, spec) in kbs.items():
        yield _calibrated(folder, kb, rows, spec)
    if not kbs:
        yield Finding("fragility", "ok", "calibrated when there are documents")


def _calibrated(folder: Path, kb: str, rows: int, spec: EmbedderSpec | None) -> Finding:
    name = f"fragility of {kb}"
    if rows < LEAST_CHUNKS:
        return Finding(
            name,
            "note",
            f"{rows} chunks have a vector, too few to say what is normal",
            f"from {LEAST_CHUNKS} on a running server calibrates it.",
        )
    try:
        kept = msgspec.json.decode((folder / f"{kb}.spread.json").read_bytes(),
                                   type=SpreadCalibration)  # fmt: skip
    except (OSError, msgspec.DecodeError):
        kept = None
    fits = kept is not None and spec is not None and kept.fingerprint == spec.fingerprint
    if kept is not None and fits and kept.rows / 2 <= rows <= kept.rows * 2:
        return Finding(name, "ok", f"calibrated on {kept.rows} chunks")
    why = "has not been calibrated" if kept is None else "was calibrated on another corpus"
    return Finding(name, "note", why, "a running server does it within seconds.")


def _wrong(name: str, detail: str, remedy: str, *, needed: bool = True) -> Finding:
    """Something that stops the server, or, where it is not ``needed``, is done without."""
    return Finding(name, "missing" if needed else "note", detail, remedy)
