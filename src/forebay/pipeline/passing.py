"""The text of one answer on its way to the client, by the stream or straight to the sink."""

from __future__ import annotations

from forebay.kernel.context import RequestContext, TextSink
from forebay.pipeline.messages import CitationWriter


class AnswerText:
    """Cleans citation markers in what comes and keeps what is certain.

    Where the client's sink is at hand, text of engines may go there past the stream.
    """

    def __init__(self, ctx: RequestContext, writer: CitationWriter) -> None:
        self.writer = writer
        self._clean = writer.feed
        self._certain: list[str] = []
        self._sink, ctx.sink = ctx.sink, None
        ctx.direct = None if self._sink is None else self._straight

    def feed(self, text: str) -> str:
        """Return the text that is certain after ``text`` arrived; may be empty."""
        certain = self._clean(text)
        if certain:
            self._certain.append(certain)
        return certain

    def __str__(self) -> str:
        """What was certain so far."""
        return "".join(self._certain)

    def _straight(self, text: str) -> bool:
        certain = self._clean(text)
        if not certain:
            return True
        self._certain.append(certain)
        assert self._sink is not None
        return self._sink(certain)


def noted(texts: list[str], sink: TextSink | None) -> TextSink | None:
    """The same sink, and ``texts`` has what went there."""
    if sink is None:
        return None

    def note(text: str) -> bool:
        texts.append(text)
        return sink(text)

    return note
