"""Whether two sentences that speak of the same thing say different things of it.

They differ in a number of the same unit, a weekday or month, a name, one word in the same place,
or, where the question asks whether something is so, in a negation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import rjieba

from forebay.generation.passages import Unit
from forebay.generation.quantities import YEAR, Values, counts, quantities, values_in
from forebay.generation.quantities import agree as values_agree
from forebay.generation.quantities import differ as values_differ
from forebay.generation.support import Scored
from forebay.generation.terms import (
    HAN,
    MAX_QUESTION_CHARACTERS,
    NAME_WEIGHT,
    WORD_WEIGHT,
    Term,
    question_terms,
    stem,
    stems,
)
from forebay.kernel.documents import Hit

_SAME_TERMS = 0.65
"""Share of the best sentence's covered weight that the other side must cover too."""
_KNOWN = 0.55
"""Share of the question's weight that the best sentence must cover itself."""
_ITSELF = 0.3
"""Share of what its title and headings leave open that it must cover itself."""
_TOLD = 0.9
"""Share of the question's weight that a statement must have to be its answer in whatever words."""
_HELD = 0.4
_SAYS_MUCH = {True: 64, False: 150}
"""Characters beyond which a sentence (Chinese, other) says so much that its numbers, names and
negations are hardly ever about what is asked."""
_SLOT_CHARACTERS = {True: 6, False: 32}
"""The longest word or name that may stand in the same place, in Chinese and in other scripts."""

_NO_LIMIT = re.compile(
    r"不(?:得|能|可以?)?(?:超过|少于|多于|低于|高于|晚于|早于|大于|小于|足|满|仅|但|过|同|论|断)"
    r"|[无不]论|未来|非常|特别|无线|\bno (?:more|less|later|fewer|sooner|earlier)\b|\bnot only\b"
)
"""What only looks like a negation: limits, glue, words that hold such a character."""
_NEGATION = re.compile(
    r"[不没无未勿禁]|谢绝|\b(?:not?|never|cannot|without|neither|nor|forbidden|prohibited|"
    r"banned)\b|n['’]t\b"
)
_ASKS_WHETHER = re.compile(
    r"^\W*(?:may|can|could|is|are|was|were|do|does|did|must|should|will|has|have|shall)\b"
    r"|吗|是否|(.)[不没]\1|可不可以",
    re.IGNORECASE,
)
_ASKS_WHEN = re.compile(
    r"\b(?:when|years?|date|since)\b|时候|何时|[哪几何]年|哪一年|日期|年份", re.IGNORECASE
)
_ASKS_NAME = re.compile(r"\b(?:who|whom|whose|where|which)\b", re.IGNORECASE)
_ASKS_NAME_HAN = re.compile(r"谁|何人|哪位|哪里|哪儿|何处|什么地方|在哪")
_OPPOSITES = tuple(
    (re.compile(one), re.compile(other))
    for one, other in (
        (
            r"\b(?:start|begin|began|open)|开始|开放|上班|开门|起始",
            r"\b(?:end|stop|finish|clos)|结束|关闭|下班|关门|截止|停止",
        ),
        (
            r"\b(?:max|at most|up to|no more|not exceed|longest)|最[高多大长晚迟]|上限|封顶|不超过",
            r"\b(?:min(?:imum)?\b|at least|no less|shortest)|最[低少小短早]|下限|至少|不少于|起步",
        ),
        (
            r"\b(?:arriv|check-?in\b|enter)|到达|入住|进入",
            r"\b(?:depart|check-?out\b|leav)|出发|退房|离开",
        ),
        (
            r"\b(?:upload|import|buy|receiv)|上传|导入|买入",
            r"\b(?:download|export|sell|sen[dt])|下载|导出|卖出",
        ),
    )
)
"""What begins is another thing than what ends."""
_PLACED = {
    True: re.compile(rf"([由归在是为向找于])([{HAN}]{{2,4}})"),
    False: re.compile(r"\b(by|at|in|on|is|near|to|with|from)\s(?:the |a |an )?([^\W\d]\w*)"),
}
"""A word that names follow, and what begins behind it."""
_VERBS = (
    re.compile(r"\b(?:to|be|i|we|you|they)\s(?:have to\s)?([a-z]+)"),
    re.compile(
        r"\b(?:do|does|did)\s(?!i\b|we\b|you\b|they\b)(?:.*\s)?(?<!\ba )(?<!\ban )(?<!\bthe )"
        r"([a-z]+)\W*$"
    ),
)
"""What stands behind a pronoun or "to", and what ends a question with "does"."""
_ASKS_HAN = re.compile(r"多少|多久|几个?|谁|何[时时人处地]|哪[里儿位个些]?|什么(?:时候|地方)?")
_SAYING = frozenset("f r d vn".split())
"""The asking word of a Chinese question, and kinds of words that name no thing."""
_CLAUSE = re.compile(r"[，；;：]\s*|[,:]\s+")
_STOPS = re.compile(r"[，；;。！？]\s*|[,.!?](?:\s|$)")
_ENDS = " .。!！;；,，"


def other_side(
    question: str,
    terms: Sequence[Term],
    best: Scored,
    others: Iterable[Scored],
    hits: Sequence[Hit],
) -> Scored | None:
    """The first of ``others``, best first, in which another document says something else.

    It covers nearly the terms ``best`` covers, and all of the rarest of them among the passages:
    a sentence about valves is no other side of one about pumps. Titles and headings are said of
    what stands below them. Where no other document does, a sentence of the same one that covers
    all that ``best`` covers and gives another value.
    """
    question = question[:MAX_QUESTION_CHARACTERS]
    total = sum(term.weight for term in terms)
    covered = sum(term.weight * held for term, held in zip(terms, best.own, strict=True))
    if not _tells_one_thing(best.unit) or max(covered, total * best.fit) < _KNOWN * total:
        return None
    document = hits[best.passage].chunk.document_id
    alike = [
        one
        for one in others
        if _tells_one_thing(one.unit) and one.unit.has_han == best.unit.has_han
    ]
    apart = [one for one in alike if hits[one.passage].chunk.document_id != document]
    rarest = _rarest(question, terms, best, apart)
    needed = rarest + _names(terms, best)
    for one in apart if rarest else ():
        said = one.said
        if (
            _tells_itself(terms, best, one)
            and _shared(terms, best.own, said) >= _SAME_TERMS * covered
            and all(said[at] >= _HELD for at in needed)
            and not opposed(question, best.unit, one.unit)
            and not of_another_clause(terms, best, one)
            and differ(question, terms, best, one)
        ):
            return one
    # Items of one list differ: that is what they are there for.
    if best.unit.kind != "sentence" or covered < _KNOWN * total:
        return None
    within = [
        one
        for one in alike
        if one.unit.kind == "sentence" and hits[one.passage].chunk.document_id == document
    ]
    return _another_value(question, terms, best, within)


def _another_value(
    question: str, terms: Sequence[Term], best: Scored, within: Sequence[Scored]
) -> Scored | None:
    """The first sentence of the same document that gives another value for all ``best`` covers."""
    asked = quantities(question)
    for one in within:
        same = all(theirs >= mine for mine, theirs in zip(best.own, one.own, strict=True))
        if same and values_differ(values_in(best.unit), values_in(one.unit), asked):
            return one
    return None


def _tells_itself(terms: Sequence[Term], best: Scored, one: Scored) -> bool:
    """Whether enough of what is not said above it stands in ``one``."""
    open_terms = [held * (above < _HELD) for held, above in zip(best.own, one.above, strict=True)]
    left = sum(term.weight * held for term, held in zip(terms, open_terms, strict=True))
    return _shared(terms, open_terms, one.own) >= _ITSELF * left


def _shared(terms: Sequence[Term], mine: Sequence[float], theirs: Sequence[float]) -> float:
    return sum(
        term.weight * min(held, own) for term, held, own in zip(terms, mine, theirs, strict=True)
    )


def differ(question: str, terms: Sequence[Term], best: Scored, other: Scored) -> bool:
    """Whether two units that cover the same terms answer the question differently."""
    values, their_values = dict(values_in(best.unit)), dict(values_in(other.unit))
    if not _ASKS_WHEN.search(question):
        # What a sentence says of the year it was written in is beside the question.
        for each in (values, their_values):
            each.pop(YEAR, None)
    asked = quantities(question)
    if values_differ(values, their_values, asked) or _counted_otherwise(best.unit, other.unit):
        return True
    mine, theirs = _clause(best.unit, terms), _clause(other.unit, terms)
    if asks_whether(question):
        return contrary(mine, theirs) or _of_another_class(values, their_values, asked)
    if _ASKS_NAME.search(question):
        known = stems(question)
        names, their_names = _capitals(best.unit.text, known), _capitals(other.unit.text, known)
        if names and their_names and not (names <= their_names or their_names <= names):
            return True
    if values_agree(values, their_values) or _lacks(best, other):
        return False
    return (
        _one_word_apart(mine, theirs)
        or _other_name(question, mine, theirs)
        or _told_otherwise(question, terms, best, other)
    )


def _lacks(best: Scored, other: Scored) -> bool:
    """Whether ``other`` is without a word of the question that ``best`` has: "weighs", "has"."""
    return any(
        mine >= _HELD and theirs < _HELD for mine, theirs in zip(best.own, other.said, strict=True)
    )


def asks_whether(question: str) -> bool:
    """Whether yes or no is an answer."""
    return _ASKS_WHETHER.search(question) is not None


def contrary(mine: str, theirs: str) -> bool:
    """Whether one of two texts denies."""
    return _negated(mine) != _negated(theirs)


def _of_another_class(values: Values, their_values: Values, asked: Values) -> bool:
    """Whether one has a value of the question and the other another: of the second class, where the
    first is asked for.
    """
    return any(
        kind in values
        and kind in their_values
        and values_agree({kind: values[kind]}, asked)
        != values_agree({kind: their_values[kind]}, asked)
        for kind in asked
    )


def _counted_otherwise(one: Unit, other: Unit) -> bool:
    """Whether a bare number in a row is another than what the other counts."""
    for row, told in ((one, other), (other, one)):
        bare = counts(values_in(row))
        if row.kind == "row" and bare.keys() == {""}:
            theirs = counts(values_in(told))
            theirs = {kind: of for kind, of in theirs.items() if kind in row.stems} or theirs
            found = {value.number for values in theirs.values() for value in values}
            if len(found) == 1 and not found & {value.number for value in bare[""]}:
                return True
    return False


def _tells_one_thing(unit: Unit) -> bool:
    return unit.kind in ("sentence", "item", "row") and len(unit.text) <= _SAYS_MUCH[unit.has_han]


def _is_han(text: str) -> bool:
    return re.search(f"[{HAN}]", text) is not None


def _rarest(
    question: str, terms: Sequence[Term], best: Scored, apart: Sequence[Scored]
) -> list[int]:
    """Which of the terms in ``best`` the fewest of the other passages hold.

    What is said of things tells none apart: it is left out where others are left.
    """
    counts = {
        at: 0
        for at, term in enumerate(terms)
        if best.own[at] >= _HELD and (term.weight >= WORD_WEIGHT or term.han)
    }
    if not apart or not counts:
        return []
    for at in counts:
        held = {one.passage for one in apart if one.own[at] >= _HELD or one.above[at] >= _HELD}
        counts[at] = len(held)
    saying = _saying(question, terms)
    counts = {at: n for at, n in counts.items() if at not in saying} or counts
    fewest = min(counts.values(), default=0)
    return [at for at, count in counts.items() if count == fewest]


def _names(terms: Sequence[Term], best: Scored) -> list[int]:
    """Names and numbers of the question that ``best`` has, or what stands above it."""
    return [
        at for at, term in enumerate(terms) if term.weight >= NAME_WEIGHT and best.said[at] >= _HELD
    ]


def opposed(question: str, best: Unit, other: Unit) -> bool:
    """Whether one of two opposites is asked for and ``other`` tells of the other."""
    mine, theirs = question.lower() + best.folded, other.folded
    return any(
        here.search(mine)
        and there.search(theirs)
        and not there.search(mine)
        and not here.search(theirs)
        for pair in _OPPOSITES
        for here, there in (pair, pair[::-1])
    )


def _saying(question: str, terms: Sequence[Term]) -> set[int]:
    """Terms that name no thing: what is done, when, how often; said in many other words.

    In Chinese what comes behind the asking word, and adverbs and the like before it.
    """
    if not _is_han(question):
        question = question.lower()
        verbs = {stem(one) for verb in _VERBS for one in verb.findall(question)}
        return {at for at, term in enumerate(terms) if term.key in verbs}
    asked = _ASKS_HAN.search(question)
    end = asked.end() if asked else len(question)
    words = {word for word, kind in rjieba.tag(question, False) if kind in _SAYING}
    return {
        at
        for at, term in enumerate(terms)
        if at and term.han and (question.find(term.key) >= end or term.key in words)
    }


def _clause(unit: Unit, terms: Sequence[Term]) -> str:
    """The clause that speaks of what is asked."""

    def covered(clause: str) -> float:
        words = stems(clause)
        return sum(
            term.weight
            for term in terms
            if (term.key in clause.lower() if term.han else term.key in words)
        )

    return max(_CLAUSE.split(unit.text), key=covered).strip(_ENDS)


def of_another_clause(terms: Sequence[Term], best: Scored, other: Scored) -> bool:
    """Whether ``other`` speaks of what another clause of ``best`` has a value for, and not of what
    is asked: "adults pay 9, children 5", asked for children, and 12 for adults elsewhere.
    """
    clauses = _CLAUSE.split(best.unit.text)
    if len(clauses) < 2 or not _lacks(best, other):
        return False
    mine = _clause(best.unit, terms)
    if not quantities(mine):
        return False
    rest = [clause for clause in clauses if clause.strip(_ENDS) != mine and quantities(clause)]
    asked = {term.key for term in terms}
    known = _content(mine).union(*(_content(key) for key in asked))
    theirs = _content(other.unit.said)
    return any(not (_content(clause) - known).isdisjoint(theirs) for clause in rest)


def _negated(clause: str) -> bool:
    return _NEGATION.search(_NO_LIMIT.sub(" ", clause.lower())) is not None


def _capitals(text: str, known: frozenset[str]) -> set[str]:
    """Capitalised words the question does not hold; the first only before another."""
    words = text.split()
    capital = [word[0].isupper() for word in words]
    return {
        word.strip("\"'’”.,;:!?()")
        for at, word in enumerate(words)
        if capital[at] and (at or (len(words) > 1 and capital[1])) and not stems(word) & known
    }


def _one_word_apart(mine: str, theirs: str) -> bool:
    """Whether they are alike but for a word or name in one place."""
    before = _alike(mine, theirs)
    left, right = mine[before:], theirs[before:]
    after = _alike(left[::-1], right[::-1])
    left, right = left[: len(left) - after], right[: len(right) - after]
    longest = max(len(left), len(right))
    return bool(
        left and right and longest <= _SLOT_CHARACTERS[_is_han(mine)] and longest <= before + after
    )


def _other_name(question: str, mine: str, theirs: str) -> bool:
    """Whether a question for who or where is answered by two names in the same place.

    "By the foreman" and "by the director": the word before is the same, and neither name is in
    the other clause or in the question.
    """
    if not (_ASKS_NAME.search(question) or _ASKS_NAME_HAN.search(question)):
        return False
    question = question.lower()
    found = [
        {
            before: rest
            for before, rest in _PLACED[_is_han(clause)].findall(clause.lower())
            if rest not in question and rest not in other.lower()
        }
        for clause, other in ((mine, theirs), (theirs, mine))
    ]
    return not found[0].keys().isdisjoint(found[1])


def _told_otherwise(question: str, terms: Sequence[Term], best: Scored, other: Scored) -> bool:
    """Whether who or where is told of all that ``best`` holds, in words that have none in common.

    "At the north car park" and "is the lawn beside the shelter": what stands behind the question's
    last word, or before it where nothing does.
    """
    if not (_ASKS_NAME.search(question) or _ASKS_NAME_HAN.search(question)):
        return False
    told = sum(term.weight * held for term, held in zip(terms, best.said, strict=True))
    if _is_han(question) != best.unit.has_han or told < _TOLD * sum(t.weight for t in terms):
        return False
    known = _content(question)
    mine, theirs = _beside(best, terms) - known, _beside(other, terms) - known
    return bool(mine and theirs) and mine.isdisjoint(theirs)


def _beside(one: Scored, terms: Sequence[Term]) -> set[str]:
    """What a unit says beside the question's terms: stems, or pairs of Chinese characters."""
    text = one.unit.text.lower()
    found = [term.key for term, held in zip(terms, one.own, strict=True) if held >= _HELD]
    places = [(at, at + len(key)) for key in found if (at := text.rfind(key)) >= 0]
    if not places:
        return set()
    start, end = max(places, key=lambda place: place[1])
    behind = re.sub(r"^\w*", "", text[end:]) if text.isascii() else text[end:]
    rest = _content(_STOPS.split(behind.lstrip(_ENDS + ":："))[0])
    return rest or _content(_STOPS.split(text[:start])[-1])


def _content(text: str) -> set[str]:
    return {
        part
        for term in question_terms(text)
        for part in (
            (term.key[at : at + 2] for at in range(max(1, len(term.key) - 1)))
            if term.han
            else (term.key,)
        )
    }


def _alike(one: str, other: str) -> int:
    """With how many equal characters they begin."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)
