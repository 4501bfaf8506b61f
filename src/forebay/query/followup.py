"""Follow-ups as questions that stand alone, by rules: what they leave out is carried over.

A question depends on the one before it when it refers to something that it does not name (it,
their, 它, 该), when it only names another case ("and for contractors?", "合同工呢？"), or when it
lacks what it asks about ("how long?", "需要多久？"). Then the topic of the earlier question takes
the place of what refers to it; where no topic can be cut out safely, the earlier question is put in
front. A question with a topic of its own is left as it is: carrying too much hides what it asks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from forebay.query.language import simplified

MOST_TURNS = 4
"""Earlier questions that are read; what lies further back is seldom meant."""
MOST_CHARACTERS = 200
"""Longer questions say what they are about, and are no topic to put in front of others."""
MOST_TOPIC_WORDS = 7

_HAN = re.compile("[\u3400-\u9fff]")
_WORD = re.compile(r"[A-Za-z0-9][\w'’.&/-]*")

# --- English -----------------------------------------------------------------------------------

_PREPOSITION = (
    "for|in|on|at|with|from|to|by|during|after|before|without|under|over|within|outside|as|of|about"
)
_OPENING = re.compile(r"^(?:(?:and|but|so|or|ok|okay|then|also)\b[\s,]*)+", re.IGNORECASE)
_CASE = re.compile(
    rf"^(?:(?:and|but|or|so|ok|okay)[\s,]+)*(?:(?:what|how) about|what if (?:it is|it's)|"
    rf"(?=(?:(?:{_PREPOSITION})\s))|(?<=and )(?=(?:the|our|my|an?)\s))\s*"
    rf"(?P<rest>(?:(?P<word>{_PREPOSITION})\s+)?.{{1,60}}?)[\s?.!]*$",
    re.IGNORECASE,
)
_ALSO = re.compile(
    r"^(?:and|or)\s+(?:also\s+)?(?P<word>(?!))?"
    r"(?P<rest>[a-z0-9][\w'’.&/-]*(?:\s+[a-z0-9][\w'’.&/-]*){0,3})\s*\?+$",
    re.IGNORECASE,
)
"""Another case by its name alone: and sick leave?"""
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
    r"^(?:(?:and|but|so|or|then|also)[\s,]+)*(?:since |until |from |by |for )?"
    r"(?:why(?: not)?|when|where|who|whom|whose|how|which(?: one| ones)?|"
    r"how (?:much|many|long|often|far|old|big|soon|late|come)|(?:who|what|which|when|where) "
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
_NO_KIND = re.compile(
    rf"(?:the|a|an|our|my|your|each|every|any|some|no|much|many|and|or|{_PREPOSITION})"
    rf"|{_ASKS.pattern}",
    re.IGNORECASE,
)
"""What stands before a noun and says not of which kind it is."""
_REFERS = re.compile(
    r"\b(?P<own>its|their|his)\b|\b(?P<it>it|they|them|he|she|him|(?:the )?same one|the former|"
    r"the latter)\b(?!['’]s? (?:possible|necessary))"
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
    r"(?:\s+of\s+(?:the\s+|a\s+)?[A-Za-z0-9][\w'’.&/-]*(?:\s+[A-Z0-9][\w-]*){0,3})?",
)
_YEAR = re.compile(r"(?<![\d.])(?:19|20)\d\d(?![\d.])")

# --- Chinese (matched on Simplified characters) ---------------------------------------------------

_ZH_OPENING = re.compile(
    r"^(?:(?:那么|那(?![里个些儿份项])|还有|另外|以及|然后|好的|嗯|请问|哦)[，,、\s]*)+"
)
_ZH_CASE = re.compile(r"^(?P<rest>[^，,。？?！!]{1,20}?)呢[？?。！!]*$")
_ZH_REFERS = re.compile(
    r"(?P<own>(?:它们?|他们?|她们?)的|其(?=[\u4e00-\u9fff])(?![他它她中实余次间])|"
    r"该(?=[\u4e00-\u9fff]{2})"
    r"(?!怎|如|不|找|由|去|是|怎么|多少))"
    r"|(?P<it>它们?|(?<!其)[他她]们?(?!人)|前者|后者|[那这]里|那儿|上述(?:内容|情况)?|(?:这|那)"
    r"(?:个|件事|种情况)?"
    r"(?=$|[？?，,。]|(?:是|要|能|可|会|需|有|怎|多|什|为|在|由|谁|包|适|和|跟|与|对)))"
)
_ZH_FUNCTION = re.compile(
    r"请问|如果|关于|对于|为什么|为何|怎么|怎样|如何|什么|时候|多少|多久|可以|能不能|是否|有没有|"
    r"以及|还有|那么|"
    r"需要|应该|[那对在把给和跟与用从由是有要会能谁的，, 、呢吗吧还也又都就]"
)
_ZH_OWN = re.compile(r"[\u4e00-\u9fffA-Za-z0-9]{2,}")
_ZH_ASKING = re.compile(
    r"为什么|为何|怎么样|怎么办|怎么|怎样|如何|什么时候|什么|何时|多长时间|多少钱|多少|多久|多长|"
    r"多大|多高|多重|多远|"
    r"哪一?[年天个些里位种家]|哪里|哪儿|哪|几[年月天次个号点]|几|谁|是否|是不是|有没有|能不能|"
    r"可不可以|要不要|会不会|"
    r"可以|可否|能否|需要|应该|必须|最多|最少|最长|最晚|最早|一般|通常|大概|具体|吗|呢|么|"
    r"[要得能会该是有在由找到还也又都才就了的去给把被用]"
)
_ZH_ELLIPTIC = re.compile(
    r"^(?:还|也|又|都|一般|通常|大概|具体|最多|最少|最晚|最早|最长)*(?:需要|要|得|能|可以|可否|"
    r"能否|怎么|怎样|如何|多久|"
    r"多少|多长|多大|几|什么时候|什么|何时|谁|在哪|哪|为什么|为何|是否|是不是|有没有|有哪些|"
    r"有什么|会|该|应该|最多|最少|"
    r"最长|最晚|由谁|找谁|到期|包括|适用|是(?=.{1,6}吗))"
)
_ZH_GENERIC = re.compile(
    r"^(?:审批|审核|流程|费用|价格|期限|时间|条件|材料|标准|要求|范围|地点|方式|步骤|负责人|联系人|电话|地址|重量|尺寸|"
    r"功率|型号|保修期?|例外|后果|处罚|上限|下限|额度|频率)"
)
"""What everything has: such a question says whose only by what was said before."""
_ZH_FAILED = re.compile(
    r"^[\u4e00-\u9fff][不没](?:了|上|到|开|动)(?:了|的话)?(?:怎么办|怎么处理)[？?]?$"
)
_ZH_LEAD = re.compile(
    r"^(?:请问|请|我想(?:知道|问|了解)(?:一下)?|想(?:问|了解)(?:一下)?|告诉我|介绍(?:一下)?|说说|"
    r"关于|解释(?:一下)?|查(?:一下)?)"
    r"+[，,\s]*"
)
_ZH_TOPIC = re.compile(
    r"^(?P<topic>[^，,。？?！!]{2,18}?)(?:的)?(?:(?:应该|一般|通常|目前|现在|每年|最多|最少|最长|"
    r"最大|一共|总共|都|还|也|是|"
    r"有|要|需要|能|可以|会|该|由|被|在|从|为)*(?:多少|多久|多长|多大|多高|多重|多远|几|什么|"
    r"怎么|怎样|如何|为什么|为何|"
    r"哪|谁|何时|是否|是不是|有没有|能不能|可不可以|区别)|(?:可以|能|要|需要|有|是|会|包括|属于|"
    r"支持|适用)[^？?]{0,14}[吗么？?])"
)
_ZH_ACTION = re.compile(
    r"^(?:什么是|什么叫|谁(?:可以|能|负责|来)?|怎么|怎样|如何|在哪里?|哪里|可以|能不能|能否|能|谁来?|什么时候|我?该怎么|"
    r"我?要怎么)(?P<topic>[^，,。？?！!吗呢么]{2,14})"
)


def standalone(question: str, earlier: Sequence[str]) -> str:
    """The question with what it leaves out; the very same where it stands alone already.

    ``earlier`` are the user's questions before it, oldest first; only the last few are read. Takes
    microseconds; the same for the same input.
    """
    if not earlier or not depends(question):
        return question
    topic = ""
    for said in earlier[-MOST_TURNS:]:
        topic = _carried(said, topic)
    return _carried(question, topic)


def depends(question: str) -> bool:
    """Whether a question leaves out what it is about."""
    text = "" if len(question) > MOST_CHARACTERS else question.strip()
    if not text or "\n" in text:
        return False
    if _HAN.search(text):
        return _depends_zh(simplified(text))
    return _depends_en(text)


def _carried(question: str, earlier: str) -> str:
    if not earlier or not depends(question):
        return question
    if len(earlier) > MOST_CHARACTERS:
        return question
    text = question.strip()
    if _HAN.search(text):
        return _carried_zh(text, earlier)
    return _carried_en(text, earlier)


def _depends_en(text: str) -> bool:
    if _BARE.match(text):
        return True
    return _case(text) is not None or _reference(_OPENING.sub("", text)) is not None


def _case(text: str) -> re.Match[str] | None:
    """Another case of what was asked before, where a question only names one."""
    case = _CASE.match(text)
    if case is None:
        case = _ALSO.match(text)
        if case is not None and _NO_NAME.search(case["rest"]):
            return None
    return None if case is None or _ASKS.search(case["rest"]) else case


def _reference(text: str) -> re.Match[str] | None:
    """What refers to something that is not named before it in the same question."""
    skipped = [match.span() for match in _EXPLETIVE.finditer(text)]
    for match in _REFERS.finditer(text):
        if any(start <= match.start() < end for start, end in skipped):
            continue
        return None if _OWN_NOUN.search(text[: match.start()]) else match
    return None


def _carried_en(text: str, earlier: str) -> str:
    case = _case(text)
    if case is not None:
        return _another_case(case, earlier)
    bare = _OPENING.sub("", text)
    reference = None if _BARE.match(text) else _reference(bare)
    topic = _topic_of(earlier) if reference is not None else None
    if reference is None or topic is None:
        return f"{_ended(earlier)} {_capital(bare)}"
    own = "'s" if reference["own"] and not topic.endswith("s") else "'" if reference["own"] else ""
    whole = bare[: reference.start()] + topic + own + bare[reference.end() :]
    return _capital(whole)


def _another_case(case: re.Match[str], earlier: str) -> str:
    """The earlier question about something else: in its place where it is found."""
    rest = case["rest"].strip()
    years = _YEAR.findall(rest)
    if len(years) == 1 and len(_YEAR.findall(earlier)) == 1:
        return _YEAR.sub(years[0], earlier)
    if case["word"]:
        place = re.compile(
            rf"\b{case['word']}\s+(?:(?:the|a|an|our|my)"
            rf"\s+)?[\w'’-]+(?:\s+[\w'’-]+){{0,2}}(?=\s*[?.!,]|$)",
            re.IGNORECASE,
        )
        found = list(place.finditer(earlier))
        if len(found) == 1:
            return earlier[: found[0].start()] + rest + earlier[found[0].end() :]
        return f"{earlier.rstrip('?.! ')} {rest}?"
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


def _topic_of(question: str) -> str | None:
    """What a question is about, if that can be cut out of it."""
    text = _LEAD.sub("", question.strip())
    if text[:6].lower() == "which ":
        return None  # what is chosen from is not what it is about
    words = _QUESTION_WORDS.match(text) or _YES_NO.match(text)
    rest = text[words.end() :] if words is not None else text
    if words is not None and words["person"]:
        # "how do I request a new laptop": what is done to it is not what it is.
        rest = re.sub(
            r"^[a-z]+(?:\s+(?:up|off|out|on|in|for|to|about|with))?\s+", "", rest, count=1
        )
    else:
        rest = re.sub(r"^[a-z]+(?:ed|te|s)\s+(?=the\b|a\b|an\b|our\b|[A-Z])", "", rest, count=1)
    phrase = _PHRASE.match(rest)
    if phrase is None:
        return None
    topic = phrase[0].rstrip(" ?.!,")
    count = len(_WORD.findall(topic))
    if not 1 <= count <= MOST_TOPIC_WORDS or _REFERS.fullmatch(topic):
        return None
    if count == 1 and topic.islower() and len(topic) < 4:
        return None
    return topic


def _depends_zh(text: str) -> bool:
    bare = _ZH_OPENING.sub("", text)
    if _ZH_CASE.match(bare) and not _ZH_ASKING.search(_ZH_CASE.match(bare)["rest"]):  # type: ignore[index]
        return True
    if _reference_zh(bare) is not None:
        return True
    return _elliptic(bare)


def _elliptic(bare: str) -> bool:
    """Whether a question begins with what it asks, and has nothing left that it asks about."""
    if _ZH_FAILED.match(bare):
        return True
    if len(bare) > 14:
        return False
    generic = _ZH_GENERIC.match(bare)
    if generic is not None:
        return not _ZH_OWN.search(_ZH_ASKING.sub("", bare[generic.end() :]))
    if not _ZH_ELLIPTIC.match(bare):
        return False
    left = "".join(_ZH_OWN.findall(_ZH_ASKING.sub("", bare)))
    return len(left) <= 2


def _reference_zh(text: str) -> re.Match[str] | None:
    found = _ZH_REFERS.search(text)
    if found is None:
        return None
    before = _ZH_FUNCTION.sub("", text[: found.start()])
    return None if _ZH_OWN.search(before) else found


def _carried_zh(text: str, earlier: str) -> str:
    plain = simplified(text)
    opening = _ZH_OPENING.match(plain)
    start = opening.end() if opening is not None else 0
    bare, plain = text[start:], plain[start:]
    case = _ZH_CASE.match(plain)
    if case is not None and not _ZH_ASKING.search(case["rest"]):
        rest = bare[: case.end("rest")]
        years = _YEAR.findall(rest)
        if len(years) == 1 and len(_YEAR.findall(earlier)) == 1:
            return _YEAR.sub(years[0], earlier)
        return f"{_ended(earlier, '？')}{bare}"
    topic = _topic_of_zh(earlier)
    reference = _reference_zh(plain)
    if topic is None:
        return f"{_ended(earlier, '？')}{bare}"
    if not _HAN.search(topic[-1]):
        topic = topic.removeprefix("the ") + " "
    if reference is None:
        return topic + bare
    before, after = bare[: reference.start()], bare[reference.end() :]
    if reference["own"]:
        # 该流程 is what was called 报销流程; 它的重量 is not the weight of its pressure.
        if len(after) >= 2 and topic.endswith(after[:2]):
            return before + topic + after[2:]
        return f"{before}{topic.rpartition('的')[0].strip() or topic}的{after}"
    return before + topic + after


def _topic_of_zh(question: str) -> str | None:
    text = question.strip()
    plain = simplified(text)
    if not _HAN.search(plain):
        return _topic_of(text)
    lead = _ZH_LEAD.match(plain)
    start = lead.end() if lead is not None else 0
    text, plain = text[start:], plain[start:]
    found = _ZH_ACTION.match(plain) or _ZH_TOPIC.match(plain)
    if found is None:
        return None
    topic = text[found.start("topic") : found.end("topic")].strip()
    return topic if _ZH_REFERS.search(simplified(topic)) is None else None


def _ended(question: str, mark: str = "?") -> str:
    text = question.rstrip()
    return text if text[-1:] in "?？。.!！" else text + mark


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
