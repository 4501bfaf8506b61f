"""Settings of query understanding; each feature has a switch of its own."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

OnAmbiguity = Literal["off", "tell", "ask", "each"]


class QuerySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a question is read before it is searched.

    All of it is rules and one small matrix product; only ``engine_rewriting`` and ``hyde`` ask an
    engine.
    """

    enabled: Annotated[
        bool, Meta(description="Read questions: language, kind, and what follows below.")
    ] = True
    rewriting: Annotated[
        bool,
        Meta(description="Search for a follow-up as a question that stands alone, by rules."),
    ] = True
    splitting: Annotated[
        bool,
        Meta(
            description="Search for both sides of a comparison, and for each of two questions in "
            "one, beside the whole (F3.1)."
        ),
    ] = True
    chat_replies: Annotated[
        bool,
        Meta(
            description="Answer greetings and thanks with a fixed sentence, without a search; "
            "where the request has a system message of its own, the generator answers."
        ),
    ] = True
    out_of_scope: Annotated[
        bool,
        Meta(
            description="Refuse what no document answers (weather, alarms, poems) where the "
            "search found nothing near it either."
        ),
    ] = True
    out_of_scope_probability: Annotated[
        float, Meta(description="How sure the classifier must be to refuse.", ge=0.5, le=1.0)
    ] = 0.7
    out_of_scope_max_score: Annotated[
        float,
        Meta(description="Nothing is refused whose best hit scores more.", ge=0.0, le=1.0),
    ] = 0.25
    classifier_path: Annotated[
        str,
        Meta(
            description="Weights of the classifier for another embedder, made by "
            "tools/train_kinds.py; empty: those of the built-in embedder."
        ),
    ] = ""
    ambiguity: Annotated[
        OnAmbiguity,
        Meta(
            description="When hits fall into unrelated groups (F0.1), or are about several things "
            "of one name: off, tell it in the answer's forebay object, ask back, or answer each "
            "sense."
        ),
    ] = "tell"
    related_percentile: Annotated[
        float,
        Meta(
            description="Hits of one sense are on average more alike, beside what they share with "
            "the question, than this share of a knowledge base's pairs of chunks, in percent.",
            ge=0.0,
            le=100.0,
        ),
    ] = 75.0
    unrelated_percentile: Annotated[
        float,
        Meta(
            description="Senses are on average no more alike, beside what they share with the "
            "question, than this share of a knowledge base's pairs of chunks, in percent.",
            ge=0.0,
            le=100.0,
        ),
    ] = 82.0
    lone_percentile: Annotated[
        float,
        Meta(
            description="The same of a sense that only one hit has, which chance brings about "
            "more easily, in percent.",
            ge=0.0,
            le=100.0,
        ),
    ] = 74.0
    engine_rewriting: Annotated[
        bool,
        Meta(description="Let the engine rewrite follow-ups; by rules where it is late."),
    ] = False
    hyde: Annotated[
        bool,
        Meta(
            description="Let the engine write a passage that might answer, and search for its "
            "vector beside the question's (HyDE, F3.10)."
        ),
    ] = False
    engine_timeout_ms: Annotated[
        int,
        Meta(description="Longest wait for what the engine writes about a question.", ge=1),
    ] = 1500
    engine_max_tokens: Annotated[
        int, Meta(description="Tokens of what the engine writes about a question.", ge=8, le=512)
    ] = 96
