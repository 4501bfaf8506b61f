"""Prepared prompts: what was built from a conversation and its passages, with its length (F4.10).

The key is everything a prompt is made of, the passages' own text included: the node to the left in
the chain document, embedding, prompt, answer cannot change without the key (F0.6), so nothing here
knows of versions. A prompt holds the fence of the process that built it, so none is shared.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from forebay.cache.hashing import sum_of
from forebay.cache.memory import MemorySettings, MemoryTier
from forebay.kernel.clock import Clock
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.stages import GenerationRequest, Message, Sampling

MAX_CHARACTERS = 16_384
"""Longer conversations are not asked twice; and theirs are built beside the loop, where no tier may
be touched."""
COUNTS_SHARE = 0.1


class PromptTierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Built prompts with their tokens."""

    enabled: Annotated[bool, Meta(description="Keep prompts that were built.")] = True
    max_bytes: Annotated[
        int, Meta(description="Memory of the kept prompts in each process.", ge=1_000_000)
    ] = 16_000_000
    life_s: Annotated[
        float, Meta(description="A prompt is kept so long after it was built (F4.10).", gt=0.0)
    ] = 900.0


class Prompting(Protocol):
    """Builds prompts."""

    def build(
        self,
        messages: Sequence[Message],
        passages: Sequence[Hit],
        sampling: Sampling,
        most_tokens: int | None = None,
    ) -> GenerationRequest:
        """The finished prompt with the passages that fitted, in citation order.

        ``most_tokens`` bounds it where that is tighter than the window.
        """
        ...


class Tokens(Protocol):
    """Counts as the engines of a pool do."""

    async def prompt(self, ctx: RequestContext, messages: Sequence[Message]) -> int | None:
        """Tokens of a prompt in the pool of ``ctx``; None: not known."""
        ...

    def written(self, pool: str, text: str) -> int | None:
        """Tokens of a text that was written there; None: not known."""
        ...


class Prepared(msgspec.Struct, frozen=True):
    """A prompt but for what the request brings along; ``kept`` passages fitted."""

    language: str
    messages: tuple[Message, ...]
    kept: int
    max_output_tokens: int
    prompt_tokens: int


class PreparedPrompts:
    """``Prompting`` in front of another, and counts of prompts in front of engines'."""

    def __init__(
        self, inner: Prompting, version: str, settings: PromptTierSettings, clock: Clock
    ) -> None:
        counts = int(settings.max_bytes * COUNTS_SHARE)
        self._inner = inner
        self._version = version
        self._life_s = settings.life_s
        self._built: MemoryTier[Prepared] = MemoryTier(
            MemorySettings(settings.max_bytes - counts), clock, _bytes_of
        )
        self._counts: MemoryTier[int] = MemoryTier(MemorySettings(counts), clock)

    def build(
        self,
        messages: Sequence[Message],
        passages: Sequence[Hit],
        sampling: Sampling,
        most_tokens: int | None = None,
    ) -> GenerationRequest:
        """See ``Prompting``."""
        if sum(len(message.content) for message in messages) > MAX_CHARACTERS:
            return self._inner.build(messages, passages, sampling, most_tokens)
        key = self._key(messages, passages, sampling.max_tokens, most_tokens)
        held = self._built.get(key)
        if held is not None:
            return GenerationRequest(
                question=messages[-1].content,
                language=held.language,
                messages=held.messages,
                passages=tuple(passages[: held.kept]),
                sampling=sampling,
                max_output_tokens=held.max_output_tokens,
                prompt_tokens=held.prompt_tokens,
            )
        built = self._inner.build(messages, passages, sampling, most_tokens)
        prepared = Prepared(
            built.language,
            built.messages,
            len(built.passages),
            built.max_output_tokens,
            built.prompt_tokens,
        )
        self._built.put(key, prepared, self._life_s)
        return built

    def counting(self, inner: Tokens | None) -> Tokens | None:
        """An engine's counts, remembered; None where no engine counts."""
        return None if inner is None else _Counted(inner, self._counts, self._life_s)

    def clear(self) -> int:
        """Forget all; how many prompts that were."""
        count = int(self._built.statistics()["entries"])
        self._built.clear()
        self._counts.clear()
        return count

    def statistics(self) -> dict[str, float]:
        """Figures of the tier; ``found`` and ``lacking`` as no request tells of this one."""
        built, counts = self._built.statistics(), self._counts.statistics()
        return {
            **built,
            "bytes": built["bytes"] + counts["bytes"],
            "found": built["hits"],
            "lacking": built["misses"],
            "counts_found": counts["hits"],
        }

    def _key(
        self,
        messages: Sequence[Message],
        passages: Sequence[Hit],
        max_tokens: int | None,
        most_tokens: int | None,
    ) -> bytes:
        said = [(message.role, message.content) for message in messages]
        shown = [
            (chunk.title, chunk.heading_path, chunk.page, chunk.context, chunk.text)
            for chunk in [hit.chunk for hit in passages]
        ]
        return _digest((self._version, said, shown, max_tokens, most_tokens))


class _Counted:
    """``Tokens`` in front of another."""

    def __init__(self, inner: Tokens, counts: MemoryTier[int], life_s: float) -> None:
        self._inner = inner
        self._counts = counts
        self._life_s = life_s

    async def prompt(self, ctx: RequestContext, messages: Sequence[Message]) -> int | None:
        """See ``Tokens``."""
        if ctx.placement is None or ctx.no_cache:
            return await self._inner.prompt(ctx, messages)
        said = [(message.role, message.content) for message in messages]
        key = _digest((ctx.placement.pool, said))
        count = self._counts.get(key)
        if count is None:
            count = await self._inner.prompt(ctx, messages)
            if count is not None:
                self._counts.put(key, count, self._life_s)
        return count

    def written(self, pool: str, text: str) -> int | None:
        """See ``Tokens``."""
        return self._inner.written(pool, text)


_MESSAGE_BYTES = sys.getsizeof(Message("user", "")) + 8
_SHELL_BYTES = sys.getsizeof(Prepared("", (), 0, 0, 0)) + sys.getsizeof(()) + 3 * 32


def _bytes_of(prepared: Prepared) -> int:
    """As ``deep_bytes``, or a little above: roles and languages are shared, numbers are small."""
    messages = prepared.messages
    texts = sum(sys.getsizeof(message.content) for message in messages)
    return _SHELL_BYTES + len(messages) * _MESSAGE_BYTES + texts


_encode = msgspec.msgpack.Encoder().encode


def _digest(parts: object) -> bytes:
    return sum_of(_encode(parts), 16)
