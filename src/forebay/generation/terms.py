"""What a question asks about: its content terms with weights, in Chinese and English.

Words that only ask or glue are left out, everyday words weigh little, names and numbers much:
no corpus is at hand here, so the weight is a prior for how rarely a term occurs.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import msgspec
import rjieba

from forebay.folding import simplified

HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN = re.compile(
    rf"(?P<han>[{HAN}]+)|(?P<word>[^\W_{HAN}]+(?:[.,'’\-_/][^\W_{HAN}]+)*(?:\+\+|#)?)"
)
_PART = re.compile(rf"[^\W_{HAN}]+")
_NOT_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")

NUMBER_WEIGHT = 1.6
NAME_WEIGHT = 1.5
WORD_WEIGHT = 1.0
COMMON_WEIGHT = 0.45
SINGLE_HAN_WEIGHT = 0.35
PART_SHARE = 0.4
MAX_QUESTION_CHARACTERS = 2000
MAX_TERMS = 64
_KNOWN_WORDS = 8192
_KNOWN_CHARACTERS = 32
"""Words that are remembered, and their longest: 12 MB at most with what is known of them."""

_STOP = frozenset(
    "a an and the or but nor so if then than that this these those there here of in on at to for "
    "from by with about into over under up down out off as is are was were be been being am do "
    "does did done doing has have had having can could will would shall should may might must "
    "not no yes i me my mine we us our ours you your yours he him his she her hers it its they "
    "them their theirs what which who whom whose when where why how whether please tell say said "
    "explain describe give let just also too very much many any some all each every both few "
    "more most other such only own same s t d ll m re ve don doesn didn isn aren wasn weren "
    "another according refer called per someone somebody everyone everybody anyone anybody nobody "
    "something anything nothing everything "
    "hello hi hey thanks thank ok okay "
    "whats hows whos im id ill ive dont doesnt didnt isnt cant couldnt wont".split()
)
_COMMON = frozenset(
    "able account add after again against allow always amount answer ask available away back bad "
    "become before begin best better between big bring buy call card case cause change check "
    "choose city come company contain cost country create date day different during early easy "
    "end enough even ever example exist fact far fast feel find first follow food form found "
    "free full get go going good great group grow happen hard help high home hour house include "
    "instead issue keep kind know known large last late learn leave left less life like line "
    "list little live local long look lose lot low made main make mean meaning meet member "
    "minute money month move name named near need never new next now number often old once one "
    "open order part pay people percent person place plan play point possible present problem "
    "provide purpose put question reason receive result right run second see set show side since "
    "small soon sort start state still stop system take talk term thing think three time today "
    "together took top travel try turn two type until use used using usually via wait want way "
    "week well went while within without word work world wrong year".split()
)
_HAN_STOP = frozenset(
    "为什么 是什么 什么样 什么时候 什么地方 什么 怎么样 怎么办 怎么 怎样 如何 多少 多久 多长 "
    "多大 多高 多远 多 几 几个 几天 几年 几点 几次 哪里 哪儿 哪些 哪个 哪一 哪一个 哪种 哪位 "
    "哪家 哪年 哪 谁 何时 何处 何种 何地 何人 何年 何 为何 请问 请 吗 呢 吧 啊 呀 嘛 的 地 得 "
    "了 著 过 是否 是不是 有没有 能不能 可不可以 会不会 要不要 是 在 有 和 与 及 或 或者 以及 "
    "并 而 但 但是 因为 因 所以 如果 若 由 由于 被 把 将 对 对于 关于 从 到 向 往 于 以 用 为 "
    "为了 让 给 跟 按 按照 根据 通过 这 那 这个 那个 这些 那些 这里 那里 这项 这种 这类 其 它 "
    "他 她 它们 他们 她们 我 我们 你 你们 您 咱们 自己 能 能够 可以 可 会 应该 应 要 需要 想 "
    "想要 必须 都 也 还 就 才 只 很 更 最 太 非常 比较 不 没 没有 不是 个 一个 一种 一些 种 些 "
    "位 名 时 时候 之 之间 其中 中 上 下 里 内 外 前 后 等 告诉 帮 帮我 说 讲 介绍 一下 叫 叫做 "
    "称为 你好 您好 谢谢 另 另外 另一个 则 所 一 年 月 日 第 一般 通常 称 又 再 来 去 使 使得 "
    "至 做 即 还是 曾 曾经 已 已经 当 当时 该 先".split()
)
# Alone they say nothing; beside another character they may be half of a word ("年假").
_HAN_SOFT = "年月日第次位名种上下中内外前后间时个"
_SOFT_ONLY = re.compile(f"[{_HAN_SOFT}]*")
_HAN_COMMON = frozenset(
    "时间 地方 问题 方法 情况 工作 使用 进行 主要 重要 部分 开始 之后 之前 成为 发生 包括 属于 "
    "认为 知道 名字 公司 国家 城市 世界 人们 第一 今天 现在 目前 怎样 原因 作用 影响 期间 方面 "
    "类型 数量 大约 名称".split()
)


class Term(msgspec.Struct, frozen=True, gc=False):
    """One thing a question asks about.

    ``key`` is a stem (other scripts) or a character pair (Han); ``han`` says which.
    """

    key: str
    weight: float
    han: bool


def fold(text: str) -> str:
    """Full-width forms and Traditional characters folded, lower case; length may change."""
    return text.lower() if text.isascii() else _plain(text).lower()


def _plain(text: str) -> str:
    return simplified(unicodedata.normalize("NFKC", text))


# Without forms that are as common as other words: left, saw, rose, leaves, lives.
_IRREGULAR = {
    form: forms.split()[0]
    for forms in (
        "arise arose arisen/become became/begin began begun/bend bent/bind bound/bite bitten/"
        "blow blew blown/break broke broken/bring brought/build built/burn burnt/buy bought/"
        "catch caught/choose chose chosen/come came/deal dealt/draw drew drawn/drink drank drunk/"
        "drive drove driven/eat ate eaten/fall fell fallen/feed fed/feel felt/fight fought/"
        "find found/fly flew flown/forbid forbade forbidden/forget forgot forgotten/"
        "freeze froze frozen/get got gotten/give gave given/go went gone/grow grew grown/"
        "hang hung/hear heard/hide hid hidden/hold held/keep kept/know knew known/lay laid/"
        "lead led/learn learnt/lend lent/lose lost/make made/mean meant/meet met/"
        "overtake overtook overtaken/pay paid/ride rode ridden/ring rang rung/rise risen/"
        "run ran/say said/see seen/seek sought/sell sold/send sent/shake shook shaken/"
        "shoot shot/show shown/sing sang sung/sink sank sunk/sit sat/sleep slept/slide slid/"
        "speak spoke spoken/spend spent/stand stood/steal stole stolen/stick stuck/strike struck/"
        "swim swam swum/take took taken/teach taught/tear tore torn/tell told/think thought/"
        "throw threw thrown/understand understood/wake woke woken/wear wore worn/win won/"
        "withdraw withdrew withdrawn/write wrote written/use used uses using/"
        "child children/man men/woman women/foot feet/tooth teeth/goose geese/mouse mice/"
        "knife knives/shelf shelves/wife wives"
    ).split("/")
    for form in forms.split()[1:]
}


def stem(word: str) -> str:
    """A crude English stem: enough to bring inflections together, cheap enough for any text."""
    return _known_stem(word) if len(word) <= _KNOWN_CHARACTERS else _stem(word)


def _stem(word: str) -> str:
    if len(word) <= 2 or not word.isascii() or not word.isalpha():
        return word
    word = _IRREGULAR.get(word, word)
    if len(word) <= 3:
        return word
    for suffix, least in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= least:
            word = word[: -len(suffix)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word.removesuffix("e") if len(word) > 3 else word


_known_stem = lru_cache(maxsize=_KNOWN_WORDS)(_stem)


_SUFFIXES = (
    ("ations", 3),
    ("ation", 3),
    ("ments", 4),
    ("ment", 4),
    ("ings", 3),
    ("ing", 3),
    ("ions", 4),
    ("ion", 4),
    ("ies", 3),
    ("ied", 3),
    ("ers", 4),
    ("er", 4),
    ("ors", 4),
    ("or", 4),
    ("ed", 3),
    ("es", 3),
    ("ly", 4),
    ("al", 4),
    ("y", 3),
    ("s", 3),
)


def stems(text: str) -> frozenset[str]:
    """Stems of every word of ``text`` that is not Han, parts of compounds included."""
    return _known_stems(text) if len(text) <= _KNOWN_CHARACTERS else _stems(text)


def _stems(text: str) -> frozenset[str]:
    return stems_in(fold(text))


def stems_in(folded: str) -> frozenset[str]:
    """``stems`` of a text that is folded."""
    found: set[str] = set()
    for match in _TOKEN.finditer(folded):
        word = match["word"]
        if word is not None:
            found.update(_forms(word))
    return frozenset(found)


_known_stems = lru_cache(maxsize=_KNOWN_WORDS)(_stems)


def first_stem(word: str) -> str:
    """The stem of a word, of a compound as a whole; the text itself where it is no such word."""
    return _known_first(word) if len(word) <= _KNOWN_CHARACTERS else _first_stem(word)


def _first_stem(word: str) -> str:
    match = _TOKEN.match(fold(word))
    return word if match is None or match["word"] is None else _forms(match["word"])[0]


_known_first = lru_cache(maxsize=_KNOWN_WORDS)(_first_stem)


def question_terms(question: str) -> tuple[Term, ...]:
    """Return the distinct content terms of ``question``; none when it only asks or greets."""
    short = len(question) <= _KNOWN_CHARACTERS
    return _known_terms(question) if short else _question_terms(question)


def _question_terms(question: str) -> tuple[Term, ...]:
    text = question[:MAX_QUESTION_CHARACTERS]
    if not text.isascii():
        text = _plain(text)
    terms: dict[str, Term] = {}
    for match in _TOKEN.finditer(text):
        if match["han"] is not None:
            _add_han(terms, match["han"])
        else:
            _add_word(terms, match["word"], first=not text[: match.start()].strip())
        if len(terms) >= MAX_TERMS:
            break
    return tuple(terms.values())


_known_terms = lru_cache(maxsize=_KNOWN_WORDS)(_question_terms)


def _forms(word: str) -> tuple[str, ...]:
    """The word itself where it has a digit inside a compound, and the stems of its parts."""
    return _known_forms(word) if len(word) <= _KNOWN_CHARACTERS else _forms_of(word)


def _forms_of(word: str) -> tuple[str, ...]:
    word = word.replace("’", "'").removesuffix("'s")
    if word.replace(",", "").replace(".", "").isdigit():
        return (word.replace(",", ""),)
    parts = _PART.findall(word)
    if len(parts) < 2:
        return (stem(word),)
    return (word, *(stem(part) for part in parts if len(part) > 1))


_known_forms = lru_cache(maxsize=_KNOWN_WORDS)(_forms_of)


def _add_word(terms: dict[str, Term], word: str, *, first: bool) -> None:
    plain = word.lower().replace("’", "'").removesuffix("'s")
    if plain in _STOP or plain.replace("'", "") in _STOP:
        return
    if len(plain) == 1 and not plain.isdigit():
        return
    if any(character.isdigit() for character in plain):
        weight = NUMBER_WEIGHT
    elif plain in _COMMON or stem(plain) in _COMMON or plain.removesuffix("s") in _COMMON:
        weight = COMMON_WEIGHT
    elif not first and word[0].isupper():
        weight = NAME_WEIGHT
    else:
        weight = WORD_WEIGHT
    whole, *parts = _forms(plain)
    terms.setdefault(whole, Term(whole, weight, han=False))
    for part in parts:
        # "BK-37" is about BK-37: another BK is little help.
        if part not in _STOP:
            terms.setdefault(part, Term(part, PART_SHARE * weight, han=False))


_HOW_MUCH = "多少钱"


def _add_han(terms: dict[str, Term], run: str) -> None:
    loose = ""
    # The dictionary would cut 满多少钱包邮 as 多少, 钱包.
    for word in [word for part in run.split(_HOW_MUCH) for word in (*rjieba.cut(part, False), "")]:
        if len(word) == 1 and (word not in _HAN_STOP or word in _HAN_SOFT):
            # Characters no dictionary word holds: together they are a name.
            loose += word
            continue
        _add_loose(terms, loose)
        loose = ""
        if len(word) > 1 and word not in _HAN_STOP:
            weight = COMMON_WEIGHT if word in _HAN_COMMON else WORD_WEIGHT
            terms.setdefault(word, Term(word, weight, han=True))


def _add_loose(terms: dict[str, Term], loose: str) -> None:
    loose = loose.strip(_HAN_SOFT) if _SOFT_ONLY.fullmatch(loose) else loose
    if len(loose) == 1 and loose not in _HAN_SOFT:
        terms.setdefault(loose, Term(loose, SINGLE_HAN_WEIGHT, han=True))
    for at in range(len(loose) - 1):
        pair = loose[at : at + 2]
        terms.setdefault(pair, Term(pair, WORD_WEIGHT, han=True))


def abbreviates(key: str, folded: str) -> bool:
    """Whether a text has what two Chinese characters may stand for: 年假 for 年休假."""
    first, last = key[0], key[1]
    at = folded.find(first)
    while at >= 0:
        end = folded.find(last, at + 2, at + 4)
        if end > 0 and folded[at:end].isalpha():
            return True
        at = folded.find(first, at + 1)
    return False
