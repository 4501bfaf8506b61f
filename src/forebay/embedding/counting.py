"""From settings to the embedder's token counter, without its model.

Cheap enough for every ingest process: neither the array library nor ONNX Runtime is imported for
the default embedder (about 80 MB in all, 57 of them the vocabulary).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from forebay.embedding.counter import BoundedTokenCounter, CounterSettings
from forebay.embedding.e5_build import ensure_e5
from forebay.embedding.settings import EmbeddingSettings
from forebay.embedding.tokenizers import SentencePieceTokenizer


def open_token_counter(settings: EmbeddingSettings, *, cache: Path) -> BoundedTokenCounter:
    """The token counter of the embedder ``settings`` ask for. Blocking.

    Remote and absent embedders are counted as the default one counts: their own vocabulary is
    out of reach. ``cache`` keeps the default model's files.
    """
    if settings.backend == "onnx":
        from forebay.embedding.onnx_folder import folder_counter
        from forebay.embedding.opening import folder_settings

        return folder_counter(folder_settings(settings))
    return open_e5_counter(cache)


def open_e5_counter(cache: Path) -> BoundedTokenCounter:
    """The default embedder's token counter. Blocking.

    Its tokenizer frees the interpreter lock, so a text need not be cut below the exact bound.
    """
    tokenizer = SentencePieceTokenizer(ensure_e5(cache).tokenizer)
    settings = CounterSettings()
    whole = msgspec.structs.replace(settings, piece_characters=settings.exact_characters)
    return BoundedTokenCounter(tokenizer, whole)
