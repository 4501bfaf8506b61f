"""Text of an answer on its way past the stream: clean, kept, and only where it may."""

from __future__ import annotations

from forebay.app.composition import Citing
from forebay.kernel.context import RequestContext, TextSink
from forebay.pipeline.passing import AnswerText, noted
from forebay.testing.generation import context, generation_request


def sink_of(ctx: RequestContext) -> TextSink | None:
    return ctx.sink


def test_what_goes_straight_is_as_clean_as_the_stream_and_in_its_order() -> None:
    said: list[str] = []

    def sink(text: str) -> bool:
        said.append(text)
        return True

    ctx = context()
    ctx.sink = sink
    request = generation_request("How long?", ["Ten days."])
    text = AnswerText(ctx, Citing(request))
    raw: list[str] = []
    direct = noted(raw, ctx.direct)
    assert sink_of(ctx) is None
    assert direct is not None
    said.append(text.feed("Ten "))
    for piece in ("days", " [", "1", "]", ", not [7", "]."):
        assert direct(piece)
    rest, citations, invalid = text.writer.finish()
    assert "".join(said) + rest == "Ten days [1], not."
    assert f"{text}{rest}" == "Ten days [1], not."
    assert "".join(raw) == "days [1], not [7]."
    assert [one.index for one in citations] == [1] and invalid == 1


def test_a_client_that_does_not_read_is_heard() -> None:
    ctx = context()
    ctx.sink = lambda _text: False
    AnswerText(ctx, Citing(generation_request("?", [])))
    assert ctx.direct is not None
    assert not ctx.direct("word")


def test_without_a_sink_nothing_goes_straight() -> None:
    ctx = context()
    AnswerText(ctx, Citing(generation_request("?", [])))
    assert ctx.direct is None
    assert noted([], ctx.direct) is None
