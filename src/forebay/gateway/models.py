"""GET /v1/models: knowledge bases as OpenAI models."""

from __future__ import annotations

from forebay.gateway.directory import PREFIX, KbDirectory, no_such_model
from forebay.gateway.exchange import Exchange
from forebay.kernel.documents import KbInfo
from forebay.wire.knowledge import ModelCard, ModelList


class ModelRoutes:
    """Lists the models a key may name, and shows one."""

    def __init__(self, directory: KbDirectory) -> None:
        self._directory = directory

    async def list(self, x: Exchange) -> None:
        """Answer GET /v1/models."""
        infos = await self._directory.readable(x.principal)
        await x.reply_json(ModelList(tuple(_card(info) for info in infos)))

    async def one(self, x: Exchange) -> None:
        """Answer GET /v1/models/{id}."""
        wanted = x.path_params["id"]
        for info in await self._directory.readable(x.principal):
            if PREFIX + info.name == wanted:
                await x.reply_json(_card(info))
                return
        raise no_such_model(wanted)


def _card(info: KbInfo) -> ModelCard:
    return ModelCard(PREFIX + info.name, int(info.created_at))
