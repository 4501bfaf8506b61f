"""The scene of a request: by rule, else by its text; its client may lower it."""

from __future__ import annotations

from collections.abc import Callable

from forebay.kernel.context import RequestContext
from forebay.pipeline.messages import AnswerRequest
from forebay.policy.admission import AdmissionSettings
from forebay.policy.admission.scenes import SceneAsked, SceneBook
from forebay.query.scenes import scene_of


class Scenes:
    """Says what requests are for; ``effective`` answers the settings in force.

    ``answer_ms`` is the deadline of answers whose scene has none.
    """

    def __init__(self, effective: Callable[[], AdmissionSettings], answer_ms: int) -> None:
        self._effective = effective
        self._answer_ms = answer_ms
        self._made_of: AdmissionSettings | None = None

    def enter(self, ctx: RequestContext, request: AnswerRequest, wanted: str | None) -> None:
        """Note in ``ctx`` what the request is; ``wanted`` is the scene its client named.

        ``InvalidRequest`` where there is none so named.
        """
        book, who = self._in_force(), ctx.principal
        text = request.messages[-1].content if request.messages else ""
        asked = SceneAsked(request.route, who.tenant, who.key_id, request.kb, text)
        own = book.ruled(asked)
        if own is None:
            allowed = request.reserved_tokens or request.sampling.max_tokens
            own = scene_of(request.messages, allowed)
        ctx.scene = book.entered(own, wanted)
        ctx.labels["scene"] = ctx.scene.name

    def _in_force(self) -> SceneBook:
        settings = self._effective()
        if settings is not self._made_of:
            self._made_of = settings
            self._book = SceneBook(
                settings.scenes, settings.scene_rules, settings.all_profiles, self._answer_ms
            )
        return self._book
