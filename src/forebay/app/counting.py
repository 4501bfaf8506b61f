"""Which token counter sizes chunks; made inside each parsing process."""

from __future__ import annotations

from pathlib import Path

from forebay.embedding.counting import open_e5_counter
from forebay.embedding.settings import EmbeddingSettings
from forebay.ingest.frames import CounterChoice
from forebay.kernel.stages import TokenCounter


def chunk_counter(settings: EmbeddingSettings, cache: Path) -> CounterChoice | None:
    """The default embedder's own counter (80 MB a process); None: the estimate.

    A model folder's tokenizer may take 300 MB in each process, and a remote one is out of reach.
    """
    if settings.backend != "e5":
        return None
    return CounterChoice("forebay.app.counting:e5_counter", str(cache))


def e5_counter(cache: str) -> TokenCounter:
    """The default embedder's token counter; blocking."""
    return open_e5_counter(Path(cache))
