"""Embedders from a folder with an ONNX model and a ``tokenizer.json`` (bge, e5, gte and alike).

Pooling, prefixes and limits are read from the files sentence-transformers writes beside a model:
``modules.json``, ``1_Pooling/config.json``, ``sentence_bert_config.json``,
``config_sentence_transformers.json``, ``config.json``, ``tokenizer_config.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec

from forebay.embedding.counter import BoundedTokenCounter
from forebay.embedding.encoder import OnnxEncoder, Pooling, SessionSettings
from forebay.embedding.identity import file_digest, fingerprint
from forebay.embedding.local import LocalEmbedder, LocalSettings
from forebay.embedding.prefixes import Prefixes, prefixes_for
from forebay.embedding.tokenizers import HuggingFaceTokenizer
from forebay.kernel.clock import Clock
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import EmbedderSpec

DEFAULT_MAX_TOKENS = 512

_MODEL_FILES = (
    "model.onnx",
    "onnx/model.onnx",
    "model_quantized.onnx",
    "onnx/model_quantized.onnx",
    "model_int8.onnx",
    "onnx/model_int8.onnx",
)
_POOLINGS: tuple[tuple[str, Pooling], ...] = (
    ("pooling_mode_cls_token", "cls"),
    ("pooling_mode_mean_tokens", "mean"),
    ("pooling_mode_lasttoken", "last"),
    ("pooling_mode_max_tokens", "max"),
)
_IN_GRAPH = ("Transformer", "Pooling", "Normalize")
_UNBOUNDED = 1_000_000
"""``model_max_length`` is about 1e30 where nobody set it."""


class OnnxFolderSettings(msgspec.Struct, frozen=True):
    """What to read from a folder; None means: as the folder says."""

    path: Path
    model_file: str | None = None
    max_tokens: int | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None


class FolderModel(msgspec.Struct, frozen=True):
    """What a folder says about its model."""

    name: str
    model: Path
    tokenizer: Path
    pooling: Pooling
    prefixes: Prefixes
    max_tokens: int
    pad_id: int


def read_folder(settings: OnnxFolderSettings) -> FolderModel:
    """Read the folder's description; ``ConfigError`` names what is missing or unsupported."""
    path = settings.path
    tokenizer = path / "tokenizer.json"
    if not tokenizer.is_file():
        raise ConfigError(
            f"{path} {'has no tokenizer.json' if path.is_dir() else 'is no folder'}: point "
            "embedding.path at the folder of an ONNX text-embedding model.",
            param="embedding.path",
        )
    config = _json(path / "config.json")
    name = str(config.get("_name_or_path") or path.resolve().name)
    prefixes = prefixes_for(
        f"{name} {path.resolve().name}",
        query=settings.query_prefix,
        passage=settings.passage_prefix,
        declared=_declared_prefixes(_json(path / "config_sentence_transformers.json")),
    )
    return FolderModel(
        name=name.rstrip("/").rsplit("/", 1)[-1],
        model=_model_file(path, settings.model_file),
        tokenizer=tokenizer,
        pooling=_pooling(path, name),
        prefixes=prefixes,
        max_tokens=settings.max_tokens or _max_tokens(path, config),
        pad_id=int(config.get("pad_token_id") or 0),
    )


def open_onnx_folder(
    folder: OnnxFolderSettings, *, session: SessionSettings, settings: LocalSettings, clock: Clock
) -> LocalEmbedder:
    """Load a model folder. Blocking: reads the whole model."""
    model = read_folder(folder)
    tokenizer = HuggingFaceTokenizer(model.tokenizer, pad_id=model.pad_id)
    encoder = OnnxEncoder(model.model, session, pooling=model.pooling, pad_id=tokenizer.pad_id)
    return LocalEmbedder(
        folder_spec(model, encoder.dimensions),
        tokenizer,
        encoder,
        prefixes=model.prefixes,
        settings=settings,
        clock=clock,
    )


def folder_counter(folder: OnnxFolderSettings) -> BoundedTokenCounter:
    """The folder's token counter alone. Blocking."""
    return BoundedTokenCounter(HuggingFaceTokenizer(read_folder(folder).tokenizer))


def folder_spec(model: FolderModel, dimensions: int) -> EmbedderSpec:
    """What identifies a folder's embedder: the contents of its files and how they are used."""
    weights = sorted(p for p in model.model.parent.glob(f"{model.model.name}*") if p.is_file())
    identity = fingerprint(
        {
            "weights": file_digest(*weights),
            "tokenizer": file_digest(model.tokenizer),
            "pooling": model.pooling,
            "query": model.prefixes.query,
            "passage": model.prefixes.passage,
            "max_tokens": model.max_tokens,
        }
    )
    return EmbedderSpec(model.name, identity, dimensions, model.max_tokens)


def _model_file(path: Path, wanted: str | None) -> Path:
    names = (wanted,) if wanted else _MODEL_FILES
    for name in names:
        if (path / name).is_file():
            return path / name
    others = sorted(path.glob("*.onnx")) or sorted(path.glob("onnx/*.onnx"))
    if wanted is None and len(others) == 1:
        return others[0]
    found = ", ".join(str(other.relative_to(path)) for other in others) or "none"
    raise ConfigError(
        f"{path.name} has no {wanted or 'model.onnx'} (ONNX files there: {found}); "
        "set embedding.model_file",
        param="embedding.model_file",
    )


def _pooling(path: Path, name: str) -> Pooling:
    folder = "1_Pooling"
    modules = _json(path / "modules.json", list)
    for module in modules:
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        if kind == "Pooling":
            folder = str(module.get("path") or folder)
        elif kind not in _IN_GRAPH:
            raise ConfigError(
                f"{path.name} ends in a {kind} layer that an ONNX graph of the transformer does "
                "not contain; export the whole model with its sentence embedding as output"
            )
    config = _json(path / folder / "config.json")
    if not config:
        return "cls" if "bge" in f"{name} {path.name}".lower() else "mean"
    chosen = [pooling for key, pooling in _POOLINGS if config.get(key)]
    if "pooling_mode" in config and not chosen:
        chosen = [p for _, p in _POOLINGS if config["pooling_mode"] in (p, f"{p}token")]
    if len(chosen) != 1:
        raise ConfigError(f"{path.name} pools in a way that is not supported (see {folder})")
    return chosen[0]


def _declared_prefixes(config: dict[str, Any]) -> Prefixes | None:
    prompts = config.get("prompts")
    if not isinstance(prompts, dict) or not any(prompts.values()):
        return None
    passage = next((prompts[key] for key in ("passage", "document") if prompts.get(key)), "")
    return Prefixes(str(prompts.get("query") or ""), str(passage))


def _max_tokens(path: Path, config: dict[str, Any]) -> int:
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and "roberta" in str(config.get("model_type", "")):
        positions -= 2  # RoBERTa numbers positions from 2
    limits = [
        positions,
        _json(path / "sentence_bert_config.json").get("max_seq_length"),
        _json(path / "tokenizer_config.json").get("model_max_length"),
    ]
    known = [int(limit) for limit in limits if limit and limit < _UNBOUNDED]
    return max(8, min(known, default=DEFAULT_MAX_TOKENS))


def _json(path: Path, kind: type[Any] = dict) -> Any:
    """The decoded file, or an empty value of ``kind`` where there is none."""
    try:
        data = path.read_bytes()
    except OSError:
        return kind()
    try:
        return cast("Any", msgspec.json.decode(data, type=kind))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path.name} in the model folder is not valid JSON") from error
