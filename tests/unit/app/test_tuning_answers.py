"""What settings do to answers: asked of two whole answering lives over small pages."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from forebay.app.settings import load_settings
from forebay.app.tuning_answers import answers_changed, to_ask
from forebay.lab.evaluate.datasets import Document, Question, QuestionSet
from forebay.lab.evaluate.result import INVENTED, REFUSED
from forebay.lab.tune.questions import Question as Tuned
from forebay.lab.tune.questions import Target, halves

THINGS = ("ferry", "sluice", "weir", "crane", "pump", "turbine", "gantry", "dredger")
ASKED = QuestionSet(
    "boats",
    tuple(
        Question(thing, f"How many tonnes does the {thing} weigh?", "en", {thing: 1}, (), (), True)
        for thing in THINGS
    )
    + tuple(
        Question(f"no-{thing}", f"Who painted the {thing} green?", "en", answerable=False)
        for thing in THINGS
    ),
    tuple(Document(thing, f"The {thing} weighs {at}5 tonnes.") for at, thing in enumerate(THINGS)),
)


def test_only_what_was_held_out_is_asked() -> None:
    tuned = tuple(
        Tuned(one.id, one.text, (Target(one.id),)) for one in ASKED.questions if one.answerable
    )
    held_out = {question.id for question in halves(tuned)[1]}
    asked = to_ask(ASKED, tuned, 200).questions
    assert {one.id for one in asked if one.answerable} == held_out < set(THINGS)
    assert sum(not one.answerable for one in asked) == len(THINGS)
    assert len(to_ask(ASKED, tuned, 2).questions) == 4


def test_refusals_and_inventions_are_compared_in_pairs(tmp_path: Path) -> None:
    settings, _ = load_settings(None, {"embedding.backend": "none"}, {})
    files = []
    for document in ASKED.documents:
        file = tmp_path / f"{document.id}.md"
        file.write_text(document.text, encoding="utf-8")
        files.append(file)

    refusing = {"generation.extractive.strictness": 50.0}
    bare = msgspec.structs.replace(ASKED, documents=())
    changes = asyncio.run(answers_changed(settings, refusing, bare, files, seed=1))
    found = {one.measure: one for one in changes}
    assert set(found) == {REFUSED, INVENTED}
    refused, invented = found[REFUSED], found[INVENTED]
    assert refused.before < 0.5 < refused.after and refused.verdict == "worse"
    assert invented.after <= invented.before and invented.verdict != "worse"
    assert refused.questions == invented.questions == len(THINGS)

    few = msgspec.structs.replace(ASKED, questions=ASKED.questions[:2])
    assert asyncio.run(answers_changed(settings, {}, few, (), seed=1)) == ()
