"""Which knowledge bases exist, as this principal may know it."""

from __future__ import annotations

import asyncio

from forebay.kernel.clock import Clock
from forebay.kernel.context import Principal
from forebay.kernel.documents import KbInfo
from forebay.kernel.errors import ModelNotFound
from forebay.pipeline.messages import Knowledge

PREFIX = "forebay/"
_FRESH_S = 1.0


class KbDirectory:
    """Names of the store's knowledge bases.

    A name that was seen once is taken to exist: a request does not wait for a look-up behind
    others' searches, and one that was dropped since is found out by whoever reads it. A name
    that is unknown and a name that may not be read take the same path through here (look, look
    again in the record, refuse), so that neither the answer's bytes nor its time tell them apart.
    """

    def __init__(self, knowledge: Knowledge, clock: Clock, default_kb: str) -> None:
        self._knowledge = knowledge
        self._clock = clock
        self._default = default_kb or None
        self._kbs: dict[str, KbInfo] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def readable(self, principal: Principal) -> tuple[KbInfo, ...]:
        """Every kb that the principal may read, as the record has it now."""
        await self._refresh(0.0)
        return tuple(info for name, info in self._kbs.items() if principal.may_read(name))

    async def kb_of_model(self, principal: Principal, model: str) -> str:
        """The kb a model name means; ``ModelNotFound`` when there is none to read."""
        if model.startswith(PREFIX):
            try:
                return await self.kb(principal, model.removeprefix(PREFIX))
            except ModelNotFound:
                raise no_such_model(model) from None
        return await self.default(principal, model)

    async def kb(self, principal: Principal, name: str) -> str:
        """Return ``name`` if it may be read; ``ModelNotFound`` says the same either way."""
        if not self._known(principal, name):
            await self._refresh(0.0)  # a kb made a moment ago is found by its maker
            if not self._known(principal, name):
                raise no_such_kb(name)
        return name

    async def default(self, principal: Principal, model: str | None = None) -> str:
        """The kb that answers for foreign model names, and where none is named."""
        named = principal.default_kb or self._default
        if named is not None and principal.may_read(named):
            return await self.kb(principal, named)
        await self._refresh(_FRESH_S)
        readable = [name for name in self._kbs if principal.may_read(name)]
        if len(readable) == 1:
            return readable[0]
        raise no_such_model(model) if model else no_default_kb()

    def lasting(self, principal: Principal, model: str) -> bool:
        """Whether a model name means the same kb for as long as that exists."""
        return model.startswith(PREFIX) or (principal.default_kb or self._default) is not None

    def _known(self, principal: Principal, name: str) -> bool:
        exists, allowed = name in self._kbs, principal.may_read(name)
        return exists and allowed

    async def _refresh(self, older_than_s: float) -> None:
        if self._clock.now() - self._read_at < older_than_s:
            return
        asked_at = self._clock.now()
        async with self._reading:
            # Whoever waited here is served by a read that began after it asked.
            if self._read_at >= asked_at:
                return
            began_at = self._clock.now()
            self._kbs = {info.name: info for info in await self._knowledge.kbs()}
            self._read_at = began_at


def no_such_model(model: str) -> ModelNotFound:
    """One sentence for what does not exist and for what may not be read."""
    return ModelNotFound(
        f"the model {model!r} does not exist or you have no access to it; "
        "GET /v1/models lists those you can use.",
        param="model",
    )


def no_such_kb(name: str) -> ModelNotFound:
    """The same for what was asked for as a knowledge base."""
    return ModelNotFound(
        f"the knowledge base {name!r} does not exist or you have no access to it; "
        "GET /v1/kb lists those you can use.",
        param="kb",
    )


def no_default_kb() -> ModelNotFound:
    """No knowledge base was named, and none is the one that is meant then."""
    return ModelNotFound(
        "there is no default knowledge base that you can use; name one as kb.", param="kb"
    )
