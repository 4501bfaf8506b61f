"""Whether a statement holds the type of thing a question asks for: a person, a time, a measure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import rjieba

from forebay.generation.passages import Unit
from forebay.generation.terms import HAN, Term, fold, question_terms, stems

_NUMBER = (
    r"(?:\d|\b(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|"
    r"twenty|thirty|fifty|half|several|dozen|hundred|thousand|million|once|twice)\b|\bnone\b|"
    r"\bno\b|\bboth\b|\bsingle\b|\bmany\b|\ball\b|很多|许多|大量|唯一|"
    rf"[零〇一二两三四五六七八九十百千万半几数]+(?=[{HAN}%]))"
)
_TIME = (
    r"second|minute|hour|day|night|week|month|quarter|year|decade|centur|秒|分钟|小时|天|日|周|"
    r"星期|礼拜|月|季|年|世纪|刻钟|钟头"
)
_LENGTH = r"[cmk]?m\b|met(?:re|er)|kilomet|mile|f(?:ee|oo)t|inch|yard|米|里|尺|寸"
_SPOKEN_TIME = (
    r"\bat (?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b|"
    r"\b(?:half|quarter) (?:past|to)\b|o'clock"
)
_ASKS_AND_SHOWS = (
    (
        "weekday",
        (r"\b(?:which|what) day of the week|\bon which day|星期几|周几|礼拜几"),
        (
            r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|周[一二三四五六日天末]|星期|礼拜|"
            r"工作日|\d ?[日号]"
            r"|日|daily|weekday|weekend"
        ),
    ),
    (
        "clock",
        (r"(?<!within )\bwhat time\b|几点"),
        (
            r"\d[:：.]\d\d|\b\d{1,2} ?[ap]\.?m\b|[\d一二三四五六七八九十两]点|(?<!小)时|noon|"
            r"midnight|"
            rf"{_SPOKEN_TIME}|quarter|中午|午夜|dawn|evening|morning|清晨|傍晚|past|早|晚"
        ),
    ),
    (
        "year",
        (r"\b(?:what|which) year|哪一?年|何年|几几年"),
        (r"\b\d{3,4}s?\b|\d年|[〇零一二三四五六七八九]{4}年|世纪|century|朝|代"),
    ),
    (
        "date",
        (r"\bwhen (?:was|were|did|had)\b|\bsince when\b"),
        (
            r"\d{3,4}|\d[/-]\d|\d\.\d+\.\d|\d(?:st|nd|rd|th)\b|january|february|march|april|"
            r"(?:\b(?:in|early|late|of|on|since|until)|\d) may\b|\bmay \d|june|july|august|"
            r"september|october|november|december|day\b|days\b|night|centur|year|month|week|"
            r"summer|winter|spring|autumn|after|before|during|until|when\b|while|early|late|"
            r"once|later|then|\bend|begin|war\b|[年月日号天周时]|世纪|[前后]|期|战|末|初"
        ),
    ),
    (
        "when",
        (
            r"\bwhen (?:is|was|were|are|did|do|does|will|has|had|can|must|should)\b|"
            r"\bsince (?:when|what)\b|\bwhat date|\bwhich month|"
            r"什么时候|何时|什么时间|哪一?天|几月|"
            r"哪个月|"
            r"日期"
        ),
        (
            r"\d{3,4}|\d[/-]\d|\d\.\d+\.\d|\d(?:st|nd|rd|th)\b|\d[:：]\d\d|\d ?[ap]\.?m\b|"
            r"january|february|march|april|(?:\b(?:in|early|late|of|on|since|until)|\d) may\b|"
            r"\bmay \d|june|july|august|september|october|november|december|day\b|days\b|noon|"
            r"night|morning|evening|summer|winter|spring|autumn|centur|year|month|week|after|"
            r"before|during|until|when|once|while|early|late|[年月日号天周时点]|春|夏|秋|冬|世纪|"
            rf"[前后]|{_SPOKEN_TIME}"
        ),
    ),
    (
        "duration",
        (
            r"\bhow (?:long|often|early|late)\b|\bwithin what time\b|"
            r"\bhow many (?:days|hours|weeks|months|years|"
            r"minutes)\b|多久|多长|多长时间|几[天年]|多少[天年]|期限|几个月|几小时|"
            r"多少(?:小时|分钟|个月)"
        ),
        (
            rf"{_TIME}|forever|permanent|永久|长期|始终|{_LENGTH}|终身|always|daily|weekly|monthly|"
            rf"annual"
            r"|次|至|直到|until|since|短|quick|twice|times|every|per"
            r"|\d ?(?:characters?|letters?|digits?|words?|pages?|lines?)\b|\d ?(?:个?字|位|页)"
        ),
    ),
    (
        "money",
        (
            r"多少钱|价格|价钱|费用|花费|售价|票价|学费|多少元|\b(?:price|cost|fee)s?\b|"
            r"\bhow much (?:does|do|did|"
            r"is|was|are|were) [\w' -]+ (?:cost|charge|paid|pay|worth)"
        ),
        (
            r"[元块圆镑¥￥$€£]|cny|rmb|usd|eur|gbp|yuan|dollar|euro|pound|cent|免费|free|price|"
            r"money"
            r"|钱|million|billion|亿|万|\brate|fee"
        ),
    ),
    (
        "weight",
        (r"多重|重量|\bhow heavy|\bhow much (?:does|do|did) [\w' -]+ weigh\b|\bweight\b"),
        (
            r"[千毫]?克|公斤|斤|吨|kg|\bg\b|\d ?(?:g|t)\b|ton(?:s|ne)?|"
            r"pound|ounce|gram|mass|weigh|"
            r""
            r"lb|重|重量|磅"
        ),
    ),
    (
        "length",
        (
            r"长度|高度|宽度|深度|距离|\b(?:length|height|width|depth|distance)\b|"
            r"多宽|多高|多深|多远|多厚|\bhow (?:wide|high|deep|far|tall|thick)\b"
        ),
        (rf"{_LENGTH}|层|楼|stor(?:e?y|ies)|degree|度|level|光年|远|深|高"),
    ),
    (
        "degrees",
        (r"多少度|温度是|\bwhat temperature"),
        (r"度|℃|degree|°|kelvin|\bk\b"),
    ),
    (
        "share",
        (r"百分之几|百分比|多大比例|几折|多少折|\bwhat (?:share|percent\w*|proportion|discount)\b"),
        (r"[%％]|百分|percent|per cent|\b(?:half|thirds?|quarters?|most)\b|折|分之|一半|多数|大半"),
    ),
    (
        "floor",
        (r"几楼|几层|哪一?层|哪一?楼|\bwhich floor|\bwhat floor"),
        (r"floor|stor(?:e?y|ies)|basement|level|[楼层]|地下"),
    ),
    (
        "place",
        (
            r"\bwhere\b|\b(?:which|what) (?:city|country|state|town|village|street|county|"
            r"continent|building|room|school|university|island|region|province)\b|哪里|哪儿|何处|何地|"
            r""
            r"什么地方|哪个(?:城市|国家|省|市|县|州|地区|地方)|哪(?:国|座城|间|所|条街)"
        ),
        (
            r"\b(?:in|at|near|on|from|into|outside|inside|along|across|through|around|between|"
            r"under|behind|off|above|below|within|throughout) (?!\d|half|the evening|"
            r"the morning|winter|summer|spring|autumn|law|advance|use)"
            r"[\w'\"]|[在于从往到至自](?!\d)|"
            r""
            r"here|home|abroad"
        ),
    ),
    (
        "colour",
        (r"\b(?:what|the) colou?rs?\b|什么颜色|哪种颜色|何种颜色"),
        (
            r"\b(?:red|blue|green|yellow|white|black|gr[ea]y|brown|orange|purple|pink|gold|"
            r"silver|violet)|colou?r|[红蓝绿黄白黑灰棕]|[橙紫粉金银]色|颜色"
        ),
    ),
    (
        "amount",
        r"功率(?!因)[^，,]{0,4}(?:多少|多大|几|是何)|\b(?:rated|nominal|maximum) power\b",
        r"瓦|马力|\d ?(?:[kmg]?w|hp|[kmg]?va)\b|watt|horsepower",
    ),
    (
        "amount",
        r"流量[^，,]{0,4}(?:多少|多大|几|是何)|\bflow rate\b",
        (
            r"升|立方|方每|m3|m³|\bl/|吨|\dt/|人|[车辆包位次条]|\d ?(?:[kmgt]b|[kmg]bps)|"
            r"lit(?:re|er)|gallon|gpm|cubic|ton"
        ),
    ),
    (
        "amount",
        r"电压[^，,]{0,4}(?:多少|多大|几|是何)|\bvoltage\b",
        r"伏|\d ?[kmµu]?v\b|volt",
    ),
    (
        "amount",
        r"电流[^，,]{0,4}(?:多少|多大|几|是何)",
        r"安|\d ?[kmµu]?a\b",
    ),
    (
        "amount",
        (r"\bhow (?:many|much)\b|多少|几个|几次"),
        _NUMBER,
    ),
)
_TYPES = tuple((name, re.compile(asks), re.compile(shows)) for name, asks, shows in _ASKS_AND_SHOWS)
_MEASURES = frozenset(
    "weekday clock year duration money weight length degrees share floor colour".split()
)
_POINTS_OF_TIME = frozenset("clock date when".split())
"""Types that bare words show; those of the question show nothing: "weekend" of a weekend shift."""
_CLASSIFIER = re.compile(
    r"(?:多少|几)([个位名人台辆棵节页册本张间只条件次块座层户家门种项支套份人步分度])"
)
_UNITS = (
    ("seconds?", "秒"),
    ("minutes?", "分钟"),
    ("hours?", "小时"),
    ("days?", "天"),
    ("weeks?", "周|星期"),
    ("months?", "个?月"),
    ("years?", "年"),
)
_IN_UNIT = tuple(
    (
        re.compile(rf"\bhow many (?:[a-z]+ )?(?:{english})\b|(?:多少|几)个?(?:{chinese})"),
        re.compile(
            rf"(?:\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten)\b)[ -]?(?:[a-z]+ )?"
            rf"(?:{english})\b|[\d一二两三四五六七八九十百半几]\s?个?(?:{chinese})"
        ),
    )
    for english, chinese in _UNITS
)
"""A unit that a question names, and a number of it in either language."""
_ASKS_WHETHER = re.compile(
    r"^\W*(?:may|can|could|is|are|was|were|do|does|did|must|should|will|has|have)\b"
    r"|吗[?？]?\s*$|是否|可不可以|能不能"
)
_ASKS_WHAT = re.compile(
    r"\b(?:who|whom|whose|where|which|what|when|how)\b|多少|多[久长大高远重宽深]|[几谁哪]|什么|何"
)
_ASKS_IN_UNIT = ("how many ", "多少", "几")
_ASKS_WHO = re.compile(r"\bwho\b(?!['’]?s\b)|\bwhom\b|\bwhose\b|谁|何人|哪位|什么人|哪个人")
_ROLE = re.compile(
    r"(?:er|or|ors|ers|ist|ists|ian|ians|man|men|woman|women|staff|head|chief|king|queen|guard"
    r"|president|people|team|children|committee|board|company|department|police|army|family|"
    r"office|clerk|nurse|crew|captain|student|students|council|government|church|ant|ants|ent"
    r"|ents|ee|ees|cook|pilot|wife|husband|mother|father|brother|sister|group|nobody|anyone)$"
)
_SHORT_ROLES = frozenset("army cook crew head king team wife".split())
"""Roles of four letters, which are too few for an ending to tell anything ("over", "user")."""
_HAN_ROLE = re.compile(
    r"(?:[员长师者家人手民工王皇帝军卫警匠商官兵]|主任|经理|老师|教授|总监|主管|公司|委员会|部门|政府|"
    r"会计|秘书|队|总统|司机|护士|保安|教练|老板|医生|同事|顾问|助理|助手|"
    r"主席|学生|[组厅局科处部]长|父|母|妻|夫|兄|弟|姐|妹|博士|先生|女士|党)$|·"
)
_PLACES = "省市县区镇村国州路街楼室厅院校港湾岛山河湖海洋洲城站馆店部处"
_WORD = re.compile(r"[A-Za-z][\w'’-]*")
_COUNTED = re.compile(_NUMBER + r"\s*(?:[a-z]+\s)?$", re.IGNORECASE)
"""What stands before the name of a role that is counted: "has six operators" names nobody."""


def asks_whether(folded: str) -> bool:
    """Whether yes or no is an answer to a folded question."""
    return bool(_ASKS_WHETHER.search(folded)) and not _ASKS_WHAT.search(folded)


class AnswerType:
    """What type of answer a question asks for, read once."""

    def __init__(self, question: str) -> None:
        folded = fold(question)
        self._who = _ASKS_WHO.search(folded) is not None
        found = next(
            ((name, at, shows) for name, asks, shows in _TYPES if (at := asks.search(folded))), None
        )
        if found and asks_whether(folded):
            # "Can the fee be refunded?" asks for no price.
            found = None
        self._shows = (found[0], found[2]) if found else None
        counted = _CLASSIFIER.search(folded)
        self._counted = counted and re.compile(
            rf"[\d一二两三四五六七八九十百千万半几数多]\s*[余多]?{counted[1]}"
        )
        self._in_unit = None
        if any(begin in folded for begin in _ASKS_IN_UNIT):
            self._in_unit = next((shows for asks, shows in _IN_UNIT if asks.search(folded)), None)
        self._name = found[1][0] if found and found[0] in _MEASURES else ""
        self._folded = folded
        self._stems = stems(folded)
        self._about = ""
        if found and found[0] in _POINTS_OF_TIME:
            self._about = folded[: found[1].start()] + " " + folded[found[1].end() :]
        self._about_stems = stems(self._about)

    @property
    def asked(self) -> str:
        """The type's name; empty when the question asks for none, or for any number."""
        name = "who" if self._who else self._shows[0] if self._shows else ""
        return "" if name == "amount" else name

    @property
    def asked_at_all(self) -> bool:
        """Whether any type is asked for, be it but a number."""
        return self._who or self._shows is not None

    @property
    def is_measure(self) -> bool:
        """Whether the answer is known by its unit, whatever words stand around it."""
        return self.asked in _MEASURES

    def unnamed(self, terms: Sequence[Term]) -> list[Term]:
        """The terms, without weight for what only asks for a measure: "yellow" says its colour."""
        own = stems(self._name)
        return [
            msgspec.structs.replace(term, weight=0.0)
            if term.key in (self._name if term.han else own)
            else term
            for term in terms
        ]

    def shown(self, unit: Unit, *, itself: bool = False) -> bool:
        """Whether a unit may hold such a thing; True where no type is asked for.

        ``itself``: not only the heading above it, as 七天无理由退货 above who pays for what.
        """
        if self._who:
            return self._person(unit.text)
        if self._shows is None:
            return True
        name, shows = self._shows
        if name in _POINTS_OF_TIME:
            folded = unit.folded
            return any(not self._is_asked_of(folded, *at.span()) for at in shows.finditer(folded))
        folded = unit.known(_without_heading) if itself else unit.folded
        return shows.search(folded) is not None or (name == "place" and self._place(unit.text))

    def _is_asked_of(self, folded: str, start: int, end: int) -> bool:
        """Whether what stands there is part of a word of the question."""
        if not folded[start:end].isascii():
            around = (folded[start - 1 : end], folded[start : end + 1])
            return any(len(one) > 1 and one in self._about for one in around)
        while start and folded[start - 1].isalpha():
            start -= 1
        while end < len(folded) and folded[end].isalpha():
            end += 1
        word = folded[start:end]
        return word.isalpha() and bool(stems(word) & self._about_stems)

    def counted(self, unit: Unit) -> bool:
        """Whether a unit counts in the question's measure word; True where it has none."""
        return self._counted is None or self._counted.search(unit.folded) is not None

    def in_unit(self, unit: Unit) -> bool:
        """Whether a unit has a number in the very unit the question names; False without one."""
        return self._in_unit is not None and self._in_unit.search(unit.folded) is not None

    def _place(self, text: str) -> bool:
        words = [match[0] for match in _WORD.finditer(text)]
        if any(word[0].isupper() and not stems(word) & self._stems for word in words[1:]):
            return True
        return not text.isascii() and any(
            kind in ("ns", "nt", "s") or (len(word) > 1 and kind[0] == "n" and word[-1] in _PLACES)
            for word, kind in rjieba.tag(text, False)
            if word not in self._folded
        )

    def _person(self, text: str) -> bool:
        first = True
        for match in _WORD.finditer(text):
            word = match[0]
            known = bool(stems(word) & self._stems)
            lower = word.lower()
            role = (len(word) > 4 and bool(_ROLE.search(lower) and question_terms(word))) or (
                lower in _SHORT_ROLES
            )
            if role and word.endswith("s"):
                role = _COUNTED.search(text[: match.start()][-24:]) is None
            if not known and (role or (word[0].isupper() and (not first or role))):
                return True
            first = False
        if text.isascii():
            return False
        return any(
            kind in ("nr", "nrt", "ns", "nt", "nz")
            or (_HAN_ROLE.search(word) is not None and kind[0] in "njxvb")
            for word, kind in rjieba.tag(text, False)
            if word not in self._folded
        )


def _without_heading(unit: Unit) -> str:
    return fold(f"{unit.lead}\n{unit.text}")
