"""The ``[context]`` section: how much goes into a prompt."""

from __future__ import annotations

from typing import Annotated

import msgspec


class ContextSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How prompts are built."""

    window_tokens: Annotated[
        int, msgspec.Meta(ge=512, description="The engine's context window, input and output.")
    ] = 8192
    input_share: Annotated[
        float,
        msgspec.Meta(
            gt=0, le=1, description="Share of the window the input may take; F4.11's cliff is 0.75."
        ),
    ] = 0.75
    history_tokens: Annotated[
        int, msgspec.Meta(ge=0, description="Earlier turns kept, newest first, up to this many.")
    ] = 1024
    max_passages: Annotated[
        int, msgspec.Meta(ge=1, le=100, description="Passages in a prompt at most (F1.14: 3-5).")
    ] = 5
    surrounding_tokens: Annotated[
        int,
        msgspec.Meta(
            ge=0, description="Tokens of text around the hits added to a prompt at most; 0: none."
        ),
    ] = 0
    surrounding_chunks: Annotated[
        int,
        msgspec.Meta(ge=1, le=8, description="Chunks added before and after a hit at most."),
    ] = 2
    max_output_tokens: Annotated[
        int, msgspec.Meta(ge=1, description="Output cap of a request that names none.")
    ] = 1024
