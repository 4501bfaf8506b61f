"""What every reader of questions must do: a suite for pytest.

Subclass ``QueryReaderConformance`` in a test module and provide a ``reader`` fixture.
"""

from __future__ import annotations

from typing import get_args

from forebay.kernel.errors import InvalidRequest
from forebay.kernel.stages import Likeness, Message, QueryKind, QueryLanguage, QueryReader
from forebay.testing.generation import passage

QUESTIONS = (
    "How long is the spillway?",
    "溢洪道有多长？",
    "溢洪道有多長？",
    "What is the difference between the north gate and the south gate?",
    "年假和病假有什么区别？",
    "hello",
    "谢谢",
    "Сколько стоит?",
    "?",
    " ",
    "x" * 100_000,
    "比" * 100_000,
)
HISTORY = (
    Message("user", "What is the notice period?"),
    Message("assistant", "Three months [1]."),
)


def asked(text: str) -> tuple[Message, ...]:
    """A conversation of one question."""
    return (Message("user", text),)


class QueryReaderConformance:
    """One test per promise of the ``QueryReader`` protocol."""

    def test_every_text_is_read(self, reader: QueryReader) -> None:
        for text in QUESTIONS:
            read = reader.read(asked(text))
            assert read.kind in get_args(QueryKind)
            assert read.language in get_args(QueryLanguage)
            assert all(part.strip() for part in read.parts)
            assert read == reader.read(asked(text))

    def test_who_says_nothing_before_is_not_rewritten(self, reader: QueryReader) -> None:
        for text in QUESTIONS:
            read = reader.read(asked(text))
            assert (read.question, read.rewritten) == (text, False)

    def test_what_was_rewritten_is_told(self, reader: QueryReader) -> None:
        for text in QUESTIONS:
            read = reader.read((*HISTORY, *asked(text)))
            assert read.rewritten == (read.question != text)

    def test_a_conversation_ends_with_a_question(self, reader: QueryReader) -> None:
        for messages in ((), HISTORY):
            try:
                reader.read(messages)
            except InvalidRequest:
                continue
            raise AssertionError("a conversation without a question was read")

    def test_without_hits_or_vector_a_question_stays_as_it_was(self, reader: QueryReader) -> None:
        read = reader.read(asked(QUESTIONS[0]))
        assert reader.judge(read, None, ()) == read

    def test_hits_that_are_alike_have_one_sense(self, reader: QueryReader) -> None:
        hits = [passage("The gate is open.", number=number) for number in (1, 2, 3)]
        read = reader.read(asked("gate"))
        same = Likeness(((100.0,) * 3,) * 3)
        assert reader.senses(read, hits, same).senses == ()

    def test_senses_are_places_of_hits(self, reader: QueryReader) -> None:
        hits = [passage("The gate is open.", number=number) for number in (1, 2, 3)]
        read = reader.read(asked("gate"))
        apart = Likeness(((100.0, 100.0, 0.0), (100.0, 100.0, 0.0), (0.0, 0.0, 100.0)))
        places = [at for sense in reader.senses(read, hits, apart).senses for at in sense.hits]
        assert len(places) == len(set(places))
        assert set(places) <= {0, 1, 2}
