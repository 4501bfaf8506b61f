"""English follow-ups: what they leave out, and what an English question is about."""

from __future__ import annotations

import re
from collections.abc import Callable

from forebay.query.likes import in_place

MOST_TOPIC_WORDS = 7

_WORD = re.compile(r"[A-Za-z0-9][\w'’.&/-]*")
_PREPOSITION = (
    "for|in|on|at|with|from|to|by|during|after|before|without|under|over|within|outside|as|of|about"
)
_OPEN = (
    r"(?:(?:and|but|so|or|ok|okay|then|also)\b[\s,]*"
    r"|(?:great|good|perfect|thanks|thank you|i see|got it)[,.!]+\s*)*"
)
_OPENING = re.compile(rf"^{_OPEN}", re.IGNORECASE)
_CASE = re.compile(
    rf"^{_OPEN}(?:(?:what|how) about|what if (?:it is|it's)|"
    rf"(?:the )?same (?:question )?for |"
    rf"how (?:much|many)(?=\s+(?:in|at|on|for)\s)|"
    rf"(?=(?:(?:{_PREPOSITION})\s))|(?<=and )(?=(?:the|our|my|an?)\s))\s*"
    rf"(?P<rest>(?:(?P<word>{_PREPOSITION})\s+)?.{{1,60}}?)"
    rf"(?:\s+(?:too|as well|also|then))?[\s?.!]*$",
    re.IGNORECASE,
)
_NOT_SO = (
    r"(?:(?:no|nope|sorry|oops|pardon|(?:wait|ah|oh|hm+|actually)(?=[,.;!:-])|my (?:mistake|bad)|"
    r"(?:the )?wrong [a-z]+|not (?:that|this)(?: one)?|"
    r"not (?:the |an? |in |at |for )?[\w' -]{1,30}?(?=[,.;]))(?![\w'-])[\s,.;!:-]*(?:but\s+)?)"
)
_I = r"(?:i|we)(?:['’]m|['’]d| am| was| were)?\s+(?:(?:really|actually)\s+)?"
_MEANT = r"(?:meant?|asked about|asking about|talking about|thinking of)"
_WANTED = r"(?:want|wanted|like|need) to (?:know|ask)(?: (?:that|this|it))?(?: (?:about|for|of))?"
_CORRECTED = re.compile(
    rf"^(?:{_NOT_SO}*{_I}{_MEANT}|{_NOT_SO}+{_I}{_WANTED})\s+(?P<rest>[^?]{{1,60}}?)[\s.!]*$"
    rf"|^{_NOT_SO}*(?P<before>[^?,]{{1,40}}?),?\s+(?:i|we) meant?[\s.!]*$"
    rf"|^{_NOT_SO}+(?P<bare>(?:the\s+|our\s+|an?\s+|in\s+|at\s+)?[\w'’.&/-]+"
    rf"(?:\s+[\w'’.&/-]+){{0,3}})[\s.!]*$",
    re.IGNORECASE,
)
"""Another case in the place of what was asked: no, I meant the A300."""
_REJECTED = re.compile(r",?\s+(?:and\s+)?not\s+.+$", re.IGNORECASE)
_ALSO = re.compile(
    r"^(?:and|or)\s+(?:also\s+)?(?P<word>(?!))?"
    r"(?P<rest>[a-z0-9][\w'’.&/-]*(?:\s+[a-z0-9][\w'’.&/-]*){0,3})\s*\?+$",
    re.IGNORECASE,
)
"""Another case by its name alone: and sick leave?"""
_NAME_ALONE = re.compile(r"^(?:the\s+)?(?P<rest>[\w'’.&/-]+(?:\s+[\w'’.&/-]+){0,2})\s*\?$")
_NO_NAME = re.compile(
    r"\b(?:i|you|we|it|they|he|she|me|us|them|him|its|their|his|this|that|these|those|one|ones|"
    r"there|here|then|now|so|else|more|next|again|also|too|if|not|no|yes|because|than|please|"
    r"thanks?|ok|okay|would|might|shall|be|been|being|am|had|did|explain|tell|show|give|list|"
    r"compare|describe|find|say|says|get|gets|go|goes|need|needs|take|takes|works|costs|means|"
    r"happens|applies|expires|allowed|required|included|further|etc|afterwards|finally)\b",
    re.IGNORECASE,
)
_LIKE = re.compile(
    r"\b(?:of|for|from|in|with)\s+(?P<old>(?:(?:the|a|an|our|my)\s+)?[\w'’-]+"
    r"(?:\s+(?!(?:of|for|from|in|with|and|or)\s)[\w'’-]+){0,2})[\s?.!]*$",
    re.IGNORECASE,
)
"""What a question ends in, in the place of which another may be put."""
_SEVERAL = re.compile(r"(?!(?:the|a|an|our|my)\s)(?:[a-z-]+\s+)?[a-z-]{2,}[a-rt-z]s")
_BARE = re.compile(
    r"^(?:(?:and|but|so|or|then|also)[\s,]+)*(?:since |until |from |by |for |up to )?"
    r"(?:why(?: not)?|when|where|who|whom|whose|how|which(?: one| ones)?|"
    r"how (?:much|long|often|far|old|big|soon|late|come)|how many(?: (?:minutes|hours|days|weeks|"
    r"months|years|times|people|euros|dollars|pounds|percent)"
    r"(?: (?:before|after|per|until)(?: [\w-]+){1,2})?)?|(?:who|what|which|when|where) "
    r"(?:is|are|was|were) (?:it |they )?(?:responsible|in charge|eligible|exempt|affected|allowed|"
    r"required|included|excluded|involved|due|available|valid|mandatory|needed)|"
    r"(?:is|are) there (?:any |an? )?(?:exceptions?|limits?|alternatives?|deadlines?|conditions?|"
    r"fees?|costs?|penalt(?:y|ies)|restrictions?))[\s?!.]*$",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"\b(?:who|what|when|where|why|how|which|is|are|was|were|do|does|did|can|could|should|must|"
    r"may|will|has|have)\b",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:the|a|an|our|my)\s+", re.IGNORECASE)
_SEVERAL_CLAUSES = re.compile(
    r"[,;:(]|[.?!]\s|\b(?:if|while|after|before|until|because|since|that|once|unless|with|of|in|on|"
    r"for|from|about|into|using|by|to|has|have|had)\b"
    r"|(?<!^)\b(?:when|which|who|whose|where|as|than|and|or|but|so)\b",
    re.IGNORECASE,
)
_DOES = re.compile(
    r"['’]|\s+(?:will|would|is|was|has|had|can|could|should|must|may|might|does|did)\b"
)
_PLACED = re.compile(
    r"\b(?:at|in|on|from|to|near|around|inside|into|with|about|for|of)\s+$", re.IGNORECASE
)
_A_KIND_OF = re.compile(r"\b(?:an?|another|any|my|our)(?:\s+\w+)?\s+$", re.IGNORECASE)
_OF_THINGS = re.compile(
    r"\bhow (?:heavy|big|large|tall|wide|deep|fast|loud|thick|expensive)\b|\bweighs?\b|\bcosts?\b"
    r"|\bmade of\b|\bcolou?r\b|^where (?:is|are) (?:it|they)\b",
    re.IGNORECASE,
)
"""What a thing has and what it is like has not: no price is heavy."""
_YEAR = re.compile(r"(?<![\d.])(?:19|20)\d\d(?![\d.])")
_OF_A_PLACE = re.compile(
    r"\b[A-Z][\w'’-]*\s+(?:offices?|branch|sites?|plants?|warehouse|factory|location|shop|store|lab|"
    r"campus|depot|station|hospital|school|museum|library|team|subsidiary)\b"
)
_NO_KIND = re.compile(
    rf"(?:the|a|an|our|my|your|each|every|any|some|no|much|many|and|or|{_PREPOSITION})"
    rf"|{_ASKS.pattern}",
    re.IGNORECASE,
)
"""What stands before a noun and says not of which kind it is."""
_REFERS = re.compile(
    r"\b(?P<own>its|their|his)\b|\b(?P<it>it|they|them|he|she|him|(?:the )?same one|the former|"
    r"the latter)\b(?!['’]s? (?:possible|necessary))"
    r"|(?<!is )(?<!are )(?<!was )(?<!were )(?<!be )(?<!has )(?<!have )(?<!will )(?<!can )"
    r"(?<!hi )(?<!hey )(?<!hello )\b(?P<there>there)\b"
    r"(?!['’]|\s+(?:is|are|was|were|be|will|any|an?|has|have|must|may|might|should|seems?)\b)"
    r"|(?<!which )(?<!this )(?<!that )(?<!each )(?<!no )(?<!the )(?<!next )(?<!last )(?<!first )"
    r"(?<!other )\b(?P<one>one|some)(?=[\s?.!]*$)"
    r"|\b(?P<this>this|that|these|those)\b(?=\s*(?:[?.!,]|$)|\s+(?:apply|cost|take|work|mean|"
    r"include|"
    r"happen|last|need|require|cover|differ|change|start|begin|end|expire|available|allowed|"
    r"possible|also|still|too|again|true|in|on|for|to)\b)",
    re.IGNORECASE,
)
_EXPLETIVE = re.compile(
    r"\b(?:is|was|would|will|does|could|can) it (?:be )?(?:possible|necessary|allowed|ok|okay|"
    r"safe|true|"
    r"worth|legal|permitted|enough|take to|matter|rain|cost to|take (?:me|us|you) to)\b"
    r"|\bwhat time is it\b|\bit takes? to\b|\bdoes it take to\b",
    re.IGNORECASE,
)
_OWN_NOUN = re.compile(
    r"\b(?:the|a|an|my|our|your|each|every|any|some|no|this|these|those|that|of|two|three)\s+"
    r"(?!same\b|first\b|last\b|former\b|latter\b)[a-z][\w-]+"
    r"|(?<!\b[Ww]ho )(?<!\b[Ww]hat )(?<!\b[Ww]hich )(?<!\b[Tt]hat )\b(?!does\b|is\b|was\b|has\b|"
    r"this\b|its\b|days\b|always\b|yes\b|hours\b|years\b|weeks\b|"
    r"months\b|times\b|steps\b|happens\b|means\b|costs\b|takes\b)[a-z]{3,}s\b"
    r"|(?<!^)(?<![?.!] )\b[A-Z][\w-]+",
)
_LEAD = re.compile(
    r"^(?:please\s+|(?:can|could|would) you (?:please )?)*(?:tell me (?:more )?about|tell me|"
    r"explain|"
    r"describe|show me|find|search for|look up|summari[sz]e|i want to know(?: about)?|"
    r"i(?:'d| would) like to know(?: about)?)\s+",
    re.IGNORECASE,
)
_QUESTION_WORDS = re.compile(
    r"^(?:and\s+|so\s+)?(?:what|who|whom|which|where|when|why|how)(?:['’]s)?"
    r"(?:\s+(?:much|many|long|often|far|old|tall|big|high|heavy|fast|deep|large)"
    r"(?:\s+(?!is|are|was|were|do|does|did|can|could|should|must|may|will|has|have)[a-z]+){0,2})?"
    r"(?:\s+(?:is|are|was|were|do|does|did|can|could|should|must|may|will|would|has|have|had))?"
    r"(?P<person>\s+(?:i|we|you|one|people))?\s+",
    re.IGNORECASE,
)
_AUXILIARY = re.compile(
    r"\b(?:do|does|did|can|could|should|must|may|will|would)\s+$", re.IGNORECASE
)
_DOING = re.compile(r"^[a-z]+(?:ed|te|s)\s+(?=(?:the|an?|our)\b|[A-Z])")
_WHO_DOES = re.compile(
    r"^(?:takes? care of|looks? after|is responsible for|is in charge of"
    r"|[a-z]+(?:ed|te|s)(?!\s+(?:of|for|in|on|at|to|from|with|up|after|about)\b))\s+"
)
_DONE_TO = re.compile(
    rf"^(?!the\b|an?\b|our\b)(?:(?!(?:{_PREPOSITION})\b)[\w'’-]+\s+){{2,4}}?(?=(?:the|an?|our)\s)"
)
"""Whoever does something to what a question is about: visitors reach the lab."""
_HAS = re.compile(
    r"^(?:do|does|did)\s+.{1,40}?\s+(?:have|offer|provide)\s+(?P<topic>(?:an?|any|the)\s+"
    r"[\w'’-]+(?:\s+[\w'’-]+){0,3}?)[\s?.!]*$",
    re.IGNORECASE,
)
_YES_NO = re.compile(
    r"^(?:is|are|was|were|do|does|did|can|could|should|must|may|will|would|has|have|had)"
    r"(?:\s+there)?(?P<person>\s+(?:i|we|you|one))?\s+",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    r"(?:(?:the|a|an|our|my|your|its|their)\s+)?[A-Za-z0-9][\w'’.&/-]*"
    r"(?:\s+(?!(?:and|or|but|who|which|that|when|where|why|how|if|because|is|are|was|were|be|has|"
    r"have|"
    r"had|do|does|did|can|could|should|must|may|will|would|get|gets|need|needs|take|takes|work|"
    r"works|"
    r"cost|costs|mean|means|start|starts|begin|begins|end|ends|last|lasts|live|lives|happen|apply|"
    r"expire|cover|covers|include|includes|require|requires|use|uses|support|supports|offer|offers|"
    r"say|says|state|states|mention|mentions|allowed|located|founded|released|used|made|built|"
    r"born|written|called|named|published|paid|"
    r"stored|kept|approved|granted|i|we|you|before|after|during|without|within|from|on|at|with|"
    r"to|by|"
    r"in|for)\b)[A-Za-z0-9][\w'’.&/-]*){0,6}"
    r"(?:\s+of\s+(?:the\s+|a\s+)?[A-Za-z0-9][\w'’.&/-]*(?:\s+[A-Z0-9][\w-]*){0,3})?"
    r"(?:\s+(?:for|at|in|on)\s+(?:(?:the|an?|our)\s+)?[\w'’-]+(?:\s+[\w'’-]+){0,2}(?=[\s?.!]*$))?",
)


def depends_en(text: str) -> bool:
    """Whether an English question leaves out what it is about."""
    if _BARE.match(text):
        return True
    if _case(text) is not None or _corrected(text):
        return True
    bare = _OPENING.sub("", text)
    return _reference(bare) is not None or _of_another(bare) is not None


def asks_in_english(text: str) -> bool:
    """Whether an English frame stands around a name in another script."""
    return _case(text) is not None


def carried_en(text: str, earlier: str, topic_of: Callable[[str], str | None]) -> str:
    """The question with what the ``earlier`` one is about, which stands alone itself."""
    corrected = _corrected(text)
    if corrected:
        replaced = in_place(corrected, earlier)
        replaced = replaced or _in_place_of(topic_of(earlier), corrected, earlier)
        return replaced or _instead(corrected, earlier)
    case = _case(text)
    if case is not None:
        return _another_case(case, earlier)
    bare = _OPENING.sub("", text)
    other = _of_another(bare)
    if other is not None:
        return carried_en(other[1], other[0], lambda name: name)
    reference = None if _BARE.match(text) else _reference(bare)
    topic = topic_of(earlier) if reference is not None else None
    if reference is None or topic is None:
        return f"{_ended(earlier)} {_capital(bare)}"
    if reference["own"] or _OF_THINGS.search(bare):
        topic = _thing(topic)
    before = bare[: reference.start()]
    if reference["one"] and _A_KIND_OF.search(before):
        topic = _ARTICLE.sub("", topic)
    if reference["there"] and not _PLACED.search(before):
        before += "at "
    own = "'s" if reference["own"] and not topic.endswith("s") else "'" if reference["own"] else ""
    return _capital(before + topic + own + bare[reference.end() :])


def topic_en(question: str) -> str | None:
    """What a question is about, if that can be cut out of it."""
    text = _LEAD.sub("", question.strip())
    if text[:6].lower() == "which ":
        return None  # what is chosen from is not what it is about
    had = _HAS.match(text)
    if had is not None:
        return had["topic"]
    words = _QUESTION_WORDS.match(text) or _YES_NO.match(text)
    rest = text[words.end() :] if words is not None else text
    if words is not None and words["person"]:
        # "how do I request a new laptop": what is done to it is not what it is.
        rest = re.sub(
            r"^[a-z]+(?:\s+(?:up|off|out|on|in|for|to|about|with))?\s+", "", rest, count=1
        )
    else:
        who = words is not None and words[0].strip().lower() == "who"
        rest = (_WHO_DOES if who else _DOING).sub("", rest, count=1)
    does = words is not None and _AUXILIARY.search(words[0]) is not None
    done_to = _DONE_TO.match(rest) if does else None
    if done_to is not None:
        rest = rest[done_to.end() :]
    phrase = _PHRASE.match(rest)
    if phrase is None:
        return None
    topic = phrase[0].rstrip(" ?.!,")
    if does and done_to is None and not rest[phrase.end() :].strip(" ?.!"):
        # "when does the gym close": the last word is what it does.
        topic = topic if " " not in _ARTICLE.sub("", topic) else topic.rpartition(" ")[0]
    count = len(_WORD.findall(topic))
    if not 1 <= count <= MOST_TOPIC_WORDS or _REFERS.fullmatch(topic):
        return None
    if count == 1 and topic.islower() and len(topic) < 4:
        return None
    return topic


def _thing(topic: str) -> str:
    """Whose a topic is, where it is something of a thing: the A300 of the price of the A300."""
    head, _, thing = topic.rpartition(" of ")
    if head:
        # A bank of England is none of England.
        return thing if _ARTICLE.sub("", head).islower() else topic
    return topic.rpartition("的")[0] or topic


def _case(text: str) -> re.Match[str] | None:
    """Another case of what was asked before, where a question only names one."""
    case = _CASE.match(text)
    if case is None:
        case = _ALSO.match(text)
        if case is not None and _NO_NAME.search(case["rest"]):
            return None
    return None if case is None or _ASKS.search(case["rest"]) else case


def _corrected(text: str) -> str:
    """What is meant instead, where somebody says that something else was; else empty."""
    found = _CORRECTED.match(text)
    if found is None:
        return ""
    rest: str = _REJECTED.sub("", found["rest"] or found["before"] or found["bare"]).strip(" ,.")
    name = _ARTICLE.sub("", re.sub(rf"^(?:{_PREPOSITION})\s+", "", rest))
    return "" if not name or _ASKS.search(name) or _NO_NAME.search(name) else name


def _of_another(text: str) -> tuple[str, str] | None:
    """Another case and a question of its own about it: and sick leave? Can it be carried over?"""
    name, _, rest = text.partition("? ")
    case = _CASE.match(name) or _ALSO.match(f"and {name}?")
    if not rest or case is None or _ASKS.search(name) or _NO_NAME.search(name):
        return None
    return (case["rest"], rest) if _reference(rest) is not None else None


def _reference(text: str) -> re.Match[str] | None:
    """What refers to something that is not named before it in the same question."""
    skipped = [match.span() for match in _EXPLETIVE.finditer(text)]
    for match in _REFERS.finditer(text):
        if any(start <= match.start() < end for start, end in skipped):
            continue
        return None if _named_before(text[: match.start()], match) else match
    return None


def _named_before(before: str, reference: re.Match[str]) -> bool:
    """Whether what is referred to may stand before it in its own question.

    What is done to it, or where, is no other part of the same clause: the certificate of "a
    certificate for it" is not it.
    """
    if not _OWN_NOUN.search(before):
        return False
    outside = reference["there"] or reference["one"] or reference["it"] in ("it", "them", "him")
    if not outside or _DOES.match(reference.string[reference.end() :]):
        return True
    return _SEVERAL_CLAUSES.search(_PLACED.sub("", before)) is not None


def _another_case(case: re.Match[str], earlier: str) -> str:
    """The earlier question about something else: in its place where it is found."""
    rest, word = case["rest"].strip(), (case["word"] or "").lower()
    name = _ARTICLE.sub("", rest[len(word) :].strip())
    if not word:
        its_like = _its_like(rest, earlier)
        if its_like is not None:
            start, end, new = its_like
            return earlier[:start] + new + earlier[end:]
        return in_place(name, earlier) or _instead(rest, earlier)
    place = re.compile(
        rf"\b(?:{'in|at' if word in ('in', 'at') else word})\s+(?:(?:the|a|an|our|my)"
        rf"\s+)?[\w'’-]+(?:\s+[\w'’-]+){{0,2}}(?=\s*[?.!,]|$)",
        re.IGNORECASE,
    )
    found = list(place.finditer(earlier))
    if len(found) == 1:
        return earlier[: found[0].start()] + rest + earlier[found[0].end() :]
    if word in ("of", "about", "for") or _YEAR.search(rest) or _OF_A_PLACE.search(earlier):
        other = in_place(name, earlier)
        if other is not None:
            return other
    return f"{earlier.rstrip('?.！？。! ')} {word}{rest[len(word) :]}?"


def _in_place_of(topic: str | None, new: str, earlier: str) -> str | None:
    """The earlier question about ``new``, where all that it was about is one plain thing."""
    if topic is None or _ARTICLE.match(topic) is None or re.search(r" (?:of|for|in|at|on) ", topic):
        return None
    name = _ARTICLE.sub("", topic)
    return earlier.replace(name, new) if earlier.count(name) == 1 else None


def named_en(text: str) -> str:
    """A name and nothing else, where it may be another case; its like must tell."""
    found = _NAME_ALONE.match(text.strip())
    rest = "" if found is None else found["rest"]
    return "" if _ASKS.search(rest) or _NO_NAME.search(rest) else rest


def _instead(rest: str, earlier: str) -> str:
    """Both questions, where nothing tells what to put in the place of what."""
    its_like = _its_like(rest, earlier)
    if its_like is None:
        return f"{_ended(earlier)} What about {rest}?"
    start, end, new = its_like
    return earlier[:start] + new + earlier[end:]


def _its_like(rest: str, earlier: str) -> tuple[int, int, str] | None:
    """Where the earlier question names a thing of the same sort, and what to put there."""
    if _REFERS.search(rest):
        return None
    bare = _ARTICLE.sub("", rest)
    kinds = re.finditer(rf"\b([\w'’-]+)\s+{re.escape(bare.split()[-1])}\b", earlier, re.IGNORECASE)
    same = [one for one in kinds if not _NO_KIND.fullmatch(one[1])]
    if " " in bare and len(same) == 1:
        return same[0].start(), same[0].end(), bare
    like = _LIKE.search(earlier)
    if like is not None and _alike(like["old"], rest):
        return like.start("old"), like.end("old"), rest
    return None


def _alike(old: str, new: str) -> bool:
    """Whether two names are of things of one sort: of the same noun, or both of several things."""
    if old.rsplit(maxsplit=1)[-1].lower() == new.rsplit(maxsplit=1)[-1].lower():
        return True
    return _SEVERAL.fullmatch(old) is not None and _SEVERAL.fullmatch(new) is not None


def _ended(question: str) -> str:
    text = question.rstrip()
    return text if text[-1:] in "?？。.!！" else text + "?"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
