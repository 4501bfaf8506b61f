"""Questions with what is known of their answers, from BEIR-style folders and JSON-lines files.

A folder holds ``queries.jsonl`` (``_id``, ``text``, ``metadata``), ``qrels.tsv`` (or
``qrels/test.tsv``) and ``corpus.jsonl`` (``_id``, ``title``, ``text``). A file of questions holds
one object a line: ``question``, and any of ``id``, ``answers``, ``answer``, ``documents``,
``language``, ``kind``, ``answerable``, ``groups``. ``answers`` are alternatives, as in SQuAD;
``answer`` may list parts that belong together.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from forebay.kernel.errors import ConfigError

T = TypeVar("T")
log = logging.getLogger("forebay.eval")
QRELS = ("qrels.tsv", "qrels/test.tsv", "qrels/dev.tsv", "qrels/train.tsv")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_LETTER = re.compile("[A-Za-z\u00c0-\u024f]")
_LATIN_PER_HAN = 5
"""A Han character says about as much as five Latin letters."""


class Document(msgspec.Struct, frozen=True):
    """A document of a set."""

    id: str
    text: str
    title: str = ""


class Question(msgspec.Struct, frozen=True):
    """A question and what is known of its answer.

    ``relevance`` grades documents (above 0: relevant). ``answers`` are alternatives; ``parts`` must
    all be in an answer. ``answerable`` None: nobody knows whether the documents hold an answer.
    ``groups`` are what to ask with; None: all rights.
    """

    id: str
    text: str
    language: str
    relevance: Mapping[str, int] = {}
    answers: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    answerable: bool | None = None
    kind: str = ""
    groups: tuple[str, ...] | None = None


class QuestionSet(msgspec.Struct, frozen=True):
    """Questions, and the documents they are put to where the set brings them."""

    name: str
    questions: tuple[Question, ...]
    documents: tuple[Document, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Equal when the same is asked and the same counts as right."""
        return _digest(self.questions)

    @property
    def corpus(self) -> str:
        """Equal when the documents are."""
        return _digest(self.documents)


class _Metadata(msgspec.Struct, frozen=True):
    answers: tuple[str, ...] | None = None
    answerable: bool | None = None
    kind: str = ""
    language: str = ""


class _Query(msgspec.Struct, frozen=True):
    id: str | int = msgspec.field(name="_id")
    text: str = ""
    metadata: _Metadata | None = None


class _Corpus(msgspec.Struct, frozen=True):
    id: str | int = msgspec.field(name="_id")
    text: str = ""
    title: str | None = None


class _Asked(msgspec.Struct, frozen=True):
    question: str
    id: str | int | None = None
    answers: tuple[str, ...] | None = None
    answer: str | tuple[str, ...] | None = None
    documents: tuple[str, ...] | Mapping[str, int] | None = None
    language: str = ""
    kind: str = ""
    answerable: bool | None = None
    groups: tuple[str, ...] | None = None


def load_set(path: Path) -> QuestionSet:
    """The set in a folder or a file; ``ConfigError`` says what is missing or wrong, and where."""
    if path.is_dir():
        found = _load_folder(path)
    elif path.is_file():
        found = QuestionSet(path.stem, tuple(_asked(path)))
    else:
        raise ConfigError(f"there is no set of questions at {path}; name a folder or a file.")
    if not found.questions:
        raise ConfigError(f"{path} holds no question.")
    ids = [question.id for question in found.questions]
    if len(set(ids)) < len(ids):
        twice = next(one for at, one in enumerate(ids) if one in ids[:at])
        raise ConfigError(f"{path} holds two questions with the id {twice!r}; ids must differ.")
    return found


def language_of(text: str) -> str:
    """``zh`` or ``en``, by the script that says more."""
    return "zh" if len(_HAN.findall(text)) * _LATIN_PER_HAN > len(_LETTER.findall(text)) else "en"


def without_answer(asked: QuestionSet) -> tuple[Question, ...]:
    """The questions of a set as ones that other documents do not answer."""
    return tuple(
        Question(
            id=f"{asked.name}/{question.id}",
            text=question.text,
            language=question.language,
            answerable=False,
            kind=question.kind,
        )
        for question in asked.questions
    )


def _load_folder(folder: Path) -> QuestionSet:
    queries, corpus = folder / "queries.jsonl", folder / "corpus.jsonl"
    for path in (queries, corpus):
        if not path.is_file():
            raise ConfigError(f"{folder} is no BEIR-style folder: it has no {path.name}.")
    relevance = _relevance(folder)
    documents = tuple(
        Document(str(row.id), row.text, row.title or "") for row in _rows(corpus, _Corpus)
    )
    _check_known(folder, relevance, documents)
    questions = []
    for row in _rows(queries, _Query):
        said = row.metadata or _Metadata()
        grades = relevance.get(str(row.id), {})
        questions.append(
            Question(
                id=str(row.id),
                text=row.text,
                language=said.language or language_of(row.text),
                relevance=grades,
                answers=said.answers or (),
                answerable=_answerable(said.answerable, grades, said.answers),
                kind=said.kind,
            )
        )
    return QuestionSet(folder.resolve().name, tuple(questions), documents)


def _check_known(
    folder: Path, relevance: Mapping[str, Mapping[str, int]], documents: Sequence[Document]
) -> None:
    """Judgements of documents that are not there can never be met: of some, that is told."""
    known = {document.id for document in documents}
    judged = {name for grades in relevance.values() for name, grade in grades.items() if grade > 0}
    if missing := judged - known:
        told = f"{len(missing)} of {len(judged)} documents judged relevant in {folder}"
        if missing == judged:
            raise ConfigError(f"{told} are not in corpus.jsonl, such as {min(missing)!r}.")
        log.warning("%s are not in corpus.jsonl, such as %r", told, min(missing))


def _relevance(folder: Path) -> dict[str, dict[str, int]]:
    path = next((folder / name for name in QRELS if (folder / name).is_file()), None)
    if path is None:
        raise ConfigError(f"{folder} is no BEIR-style folder: it has none of {', '.join(QRELS)}.")
    found: dict[str, dict[str, int]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        cells = line.split("\t")
        try:
            query, document, grade = cells[0], cells[-2], int(cells[-1])
        except (IndexError, ValueError):
            if number == 1 or not line.strip():
                continue  # the names of the columns
            raise ConfigError(
                f"{path}:{number} is no judgement; write query, document and grade with tabs."
            ) from None
        found.setdefault(query, {})[document] = grade
    return found


def _asked(path: Path) -> Iterator[Question]:
    for number, row in enumerate(_rows(path, _Asked), 1):
        named = row.documents or {}
        grades = named if isinstance(named, Mapping) else dict.fromkeys(named, 1)
        parts: tuple[str, ...] = ()
        answers = row.answers or ()
        if isinstance(row.answer, str):
            answers = (*answers, row.answer)
        elif row.answer:
            parts, answers = row.answer, (*answers, " ".join(row.answer))
        nothing = any(one in ((), "", {}) for one in (row.answers, row.answer, row.documents))
        yield Question(
            id=str(number if row.id is None else row.id),
            text=row.question,
            language=row.language or language_of(row.question),
            relevance=grades,
            answers=answers,
            parts=parts,
            answerable=_answerable(row.answerable, grades, answers if nothing else answers or None),
            kind=row.kind,
            groups=row.groups,
        )


def _answerable(
    said: bool | None, grades: Mapping[str, int], answers: tuple[str, ...] | None
) -> bool | None:
    """What is said; else yes with a relevant document or an answer, no with an empty list."""
    if said is not None:
        return said
    if answers or any(grade > 0 for grade in grades.values()):
        return True
    return None if answers is None else False


def _rows(path: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise ConfigError(f"{path}:{number} cannot be read: {error}.") from error


def _digest(value: Any) -> str:
    encoded = msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(encoded, digest_size=8).hexdigest()
