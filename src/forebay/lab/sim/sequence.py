"""One request inside an engine: what it asks, and how far it has come."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.lab.sim.blocks import Node


class State(enum.Enum):
    """Where a sequence is in its life."""

    NEW = "new"
    WAITING = "waiting"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class Sequence:
    """A request for ``output_tokens`` tokens after a prompt of ``input_tokens``.

    ``block_hashes`` name the full blocks at the beginning of the prompt, and may go on with those
    of the answer, ``hash_tokens`` tokens each (0: the engine's block size; else a multiple of it).
    Two prompts share a block when all hashes up to it are equal, so hashes need not be chained. A
    lower ``priority`` goes first under priority scheduling. ``tag`` is the caller's own. Times are
    the engine's seconds.
    """

    __slots__ = (
        "admitted_at",
        "arrived_at",
        "block_hashes",
        "cached_tokens",
        "computed_tokens",
        "finish_step",
        "finished_at",
        "first_token_at",
        "hash_tokens",
        "id",
        "input_tokens",
        "joined_step",
        "node",
        "order",
        "output_tokens",
        "preemptions",
        "priority",
        "prompt_tokens",
        "shared_blocks",
        "state",
        "tag",
        "written_tokens",
    )

    def __init__(
        self,
        id: int,  # noqa: A002 - the name every caller expects
        input_tokens: int,
        output_tokens: int,
        block_hashes: tuple[int, ...] = (),
        hash_tokens: int = 0,
        priority: int = 0,
    ) -> None:
        self.id = id
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.block_hashes = block_hashes
        self.hash_tokens = hash_tokens
        self.priority = priority
        self.tag: object = None
        self.state = State.NEW
        self.arrived_at = 0.0
        self.admitted_at: float | None = None  # the first time
        self.first_token_at: float | None = None
        self.finished_at: float | None = None
        self.cached_tokens = 0  # prompt tokens the prefix cache gave at the first admission
        self.preemptions = 0
        # The engine's own: read them through Engine.produced and the fields above.
        self.order = 0  # of arrival, ties of priority
        self.prompt_tokens = input_tokens  # input plus what a preemption makes it compute again
        self.computed_tokens = 0  # tokens in the KV cache when the last prefill step ended
        self.written_tokens = 0  # output tokens when it joined the decoding ones (or stopped)
        self.joined_step = 0  # the engine's decode step counter at that time
        self.finish_step = 0
        self.node: Node | None = None  # the end of the path of cached blocks that it holds
        self.shared_blocks = 0  # of its blocks, those that stand in the prefix cache

    def __repr__(self) -> str:
        return (
            f"Sequence({self.id}, {self.input_tokens}+{self.output_tokens} tokens, "
            f"{self.state.value})"
        )
