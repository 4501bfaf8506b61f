"""The default embedder: multilingual-e5-small, 384 dimensions, Chinese and English alike."""

from __future__ import annotations

from pathlib import Path

from forebay.embedding.e5_build import VECTORS_VERSION, E5Files, ensure_e5
from forebay.embedding.encoder import OnnxEncoder, SessionSettings
from forebay.embedding.identity import fingerprint
from forebay.embedding.local import LocalEmbedder, LocalSettings
from forebay.embedding.prefixes import E5, Prefixes
from forebay.embedding.tokenizers import SentencePieceTokenizer
from forebay.kernel.clock import Clock
from forebay.kernel.stages import EmbedderSpec

NAME = "multilingual-e5-small"
DIMENSIONS = 384
MAX_TOKENS = 512


def e5_spec(files: E5Files, prefixes: Prefixes = E5) -> EmbedderSpec:
    """What identifies the default embedder with these prefixes."""
    identity = fingerprint(
        {
            "weights": files.source_sha256,
            "builder": VECTORS_VERSION,
            "quantisation": "int8 per channel, dynamic activations",
            "pooling": "mean",
            "query": prefixes.query,
            "passage": prefixes.passage,
            "max_tokens": MAX_TOKENS,
        }
    )
    return EmbedderSpec(NAME, identity, DIMENSIONS, MAX_TOKENS)


def open_e5(
    cache: Path,
    *,
    prefixes: Prefixes = E5,
    session: SessionSettings,
    settings: LocalSettings,
    clock: Clock,
) -> LocalEmbedder:
    """Build (first time) and load the default embedder. Blocking: seconds, then a second."""
    files = ensure_e5(cache)
    tokenizer = SentencePieceTokenizer(files.tokenizer)
    return LocalEmbedder(
        e5_spec(files, prefixes),
        tokenizer,
        OnnxEncoder(files.model, session, final_graph=True),
        prefixes=prefixes,
        settings=settings,
        clock=clock,
    )
