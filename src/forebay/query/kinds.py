"""What kind of question it is, by words that give it away (F3.1), in English and Chinese."""

from __future__ import annotations

import re
from typing import NamedTuple

from forebay.folding import simplified
from forebay.kernel.stages import QueryKind

READ_CHARACTERS = 400
CHAT_CHARACTERS = 60


class Guess(NamedTuple):
    """A kind, and whether words said so; where none did, ``sure`` is False."""

    kind: QueryKind
    sure: bool


_CHAT_EN = (
    "hi|hello|hey|hiya|greetings|good (?:morning|afternoon|evening|night)|thanks?|thank you|thx|"
    "cheers|bye|goodbye|bye bye|see you|see you (?:later|soon|tomorrow)|how are you|"
    "how are you doing|how is it going|how's it going|what's up|who are you|what are you|"
    "what(?:'s| is) your name|are you (?:a |an )?(?:robot|bot|human|real|ai|machine)|"
    "what can you do|nice to meet you|well done|long time no see|happy new year|"
    "have a (?:nice|good|great) (?:day|weekend|evening|time)"
)
_CHAT_EN_END = (
    "there|very much|so much|a lot|again|all|everyone|everybody|friend|team|now|for now|today|"
    "for (?:your|the) help|that (?:was|is) (?:very )?helpful|that helps|that's all"
)
_CHAT_ZH = (
    "你好|您好|你们好|大家好|嗨|哈喽|哈啰|早上好|上午好|中午好|下午好|晚上好|早安|晚安|早|谢谢|多"
    "谢|感谢|"
    "非常感谢|十分感谢|谢了|再见|拜拜|回见|明天见|回头见|在吗|在不在|最近怎么样|你好吗|你是谁|您"
    "是谁|"
    "你叫什么(?:名字)?|你是(?:机器人|真人|人|ai)|你(?:能|会|可以)(?:做|干)(?:什么|啥)|很高兴认识"
    "你|辛苦了?|"
    "新年快乐|周末愉快|好久不见|太棒了"
)
_CHAT_ZH_END = (
    "你|您|你们|大家|啦|了|啊|呀|吗|呢|哦|哈|很有帮助|帮大忙了|你的帮助|您的帮助|大家晚上好"
)
_CHAT = re.compile(
    rf"\W*(?:(?:{_CHAT_EN})(?:[\s,!.]+(?:{_CHAT_EN_END}))*[\s,.!?~…。！？～，]*){{1,3}}"
    rf"|\W*(?:(?:大家)?(?:{_CHAT_ZH})[，,\s]*(?:{_CHAT_ZH_END})*[\s,.!?~…。！？～，]*){{1,3}}",
    re.IGNORECASE,
)
_OUT_OF_SCOPE = re.compile(
    r"^(?:please |can you |could you )*(?:"
    r"(?:play|sing) (?:me )?(?:a |some |the |my )?(?:[\w]+ ){0,2}(?:music|song|jazz|playlist)|"
    r"(?:set|cancel) (?:an? |my |the )?(?:alarm|timer)|tell (?:me |us )?(?:a |another )?joke|"
    r"write (?:me )?(?:an? )?(?:\w+ )?(?:poem|song|story|haiku)|flip a coin|roll (?:a |the )?dice|"
    r"(?:what(?:'s| is| will)|how(?:'s| is| will)) (?:the )?weather\b|"
    r"what(?:'s| is) (?:the )?(?:time|date)(?: (?:now|today|is it|right now))?\W*$|"
    r"what time is it\b|what is \d+ ?(?:[*x+/-]|times|plus|minus|divided by) ?\d+|"
    r"turn (?:on|off|up|down) the (?:lights?|volume|tv|music|heating)|"
    r"translate .{1,60} (?:in)?to (?:english|chinese|french|german|spanish|japanese|korean|italian)"
    r")",
    re.IGNORECASE,
)
_OUT_OF_SCOPE_ZH = re.compile(
    r"(?:今天|明天|后天|现在|周末).{0,6}天气|天气(?:怎么样|如何|预报)|^(?:请|帮我|给我)?(?:放|"
    r"播放|来)(?:一)?首|"
    r"(?:讲|说)(?:一?个)笑话|写(?:一)?首.{0,10}诗|抛(?:个|一个)?硬币|定(?:一)?个.{0,8}闹钟|"
    r"^.{0,6}现在几点|把.{1,20}翻译成.{1,3}(?:语|文)|\d+\s*(?:乘以|加上?|减去?|除以|[×x*+÷/-])"
    r"\s*\d+\s*"
    r"(?:等于|是|得)(?:多少|几)|提醒我(?!们)|(?:开|关)(?:一下)?(?:卧室|客厅|房间)?的?灯",
    re.IGNORECASE,
)
_MORE = (
    "better|best|worse|worst|larger|largest|bigger|biggest|smaller|smallest|higher|highest|lower|"
    "lowest|longer|longest|shorter|shortest|cheaper|cheapest|faster|fastest|slower|slowest|older|"
    "oldest|younger|youngest|earlier|earliest|later|latest|stronger|strongest|weaker|safer|safest|"
    "quicker|heavier|lighter|newer|stricter|warmer|colder|taller|tallest|more|most|less|least|"
    "fewer|first"
)
_COMPARISON = re.compile(
    rf"\b(?:compar(?:e|es|ed|ing|ison)|differences?|differ(?:s|ent from|ing)?|versus|vs\.?|"
    rf"similarit\w+|distinguish\w*|pros and cons|advantages?|disadvantages?|rather than|"
    rf"(?:{_MORE}|\w+er) .{{0,40}}\bthan|sets? .{{1,40}} apart|the same .{{1,40}} as|"
    rf"which .{{0,50}}\b(?:{_MORE})|both .{{1,60}} (?:same|from|by)|"
    rf"(?:is|are) .{{1,40}} (?:better|quicker|faster|cheaper|safer)|"
    rf"should i (?:choose|take|buy) .{{1,60}} or|rank the|more in .{{1,30}} or|"
    rf"(?:is|are|was|were|do|does|did) .{{1,60}} and .{{1,60}} the same|"
    rf"who .{{1,30}} (?:{_MORE}))\b",
    re.IGNORECASE,
)
_COMPARISON_ZH = re.compile(
    r"(?:比较|对比|相比|区别|差异|差别|不同|异同|不一样|优缺点|优劣|孰)|哪[个种台款边家座项类]"
    r".{0,8}(?:更|最|比较|先|大|小|高|低|"
    r"快|慢|便宜|好)|比.{1,20}(?:更|快|慢|大|小|高|低|长|短|贵|便宜|好|差|强|严格|详细|结实)|"
    r".{2,20}还是.{2,20}|一样吗|[是用].{0,6}同一[个种].{1,20}吗|排序|贵多少|多多少|少多少",
    re.IGNORECASE,
)
_FAQ = re.compile(
    r"\bhow (?:do|can|should|could|would|must|may) (?:i|we|you|one)\b|\bhow to\b"
    r"|\b(?:can|may|could|should|must|am|are|do|shall) (?:i|we)\b"
    r"|\b(?:where|who|whom|what|when) (?:do|can|should|must|may) (?:i|we)\b"
    r"|\b(?:i|we) (?:need|want|forgot|lost|cannot|can't|would like) (?:to\b|my\b|our\b)?"
    r"|\bwhat (?:are the )?steps\b|\bis it (?:possible|allowed|ok|okay)\b|\bwhat now\b"
    r"|\bmy .{1,40} (?:is|was|has|does|did|will)\b"
    r"",
    re.IGNORECASE,
)
_FAQ_ZH = re.compile(
    r"怎么办|怎么(?!样|回事|会|造成|连接的)(?!.{0,8}(?:的关系|影响))|怎样(?!影响)|如何(?!影响)|"
    r"能不能|能否|可不可以|"
    r"^(?:我|我们)?(?:可以|能|可否|是否可以).{1,30}[吗么?？]|可以.{1,16}[吗么]|是否可以|流程|"
    r"步骤|找谁|手续|"
    r"在哪里?(?:办|申请|找|报销|查|领|买|看|下载)|[还]?能.{1,10}[吗么]|要带什么|准备哪些|"
    r"需要.{1,10}[吗么]",
    re.IGNORECASE,
)
_RELATION = re.compile(
    r"\b(?:relat(?:ed|es|ion|ions|ionship|ionships)|depends?|dependenc\w+|reports? to|"
    r"belongs? to|connect(?:ed|ions?)|link(?:ed|s)? (?:to|between|with)|linked|affect(?:s|ed)?|"
    r"impact|influences?|contribut\w+|causes?|caused|leads? to|led to|why|because|trigger(?:s|ed)?|"
    r"responsible for|consequences?|role does|made \w+ \w+|what happens (?:to|if|when)|"
    r"follows? from|derive[sd]? from|involved in|supervis\w+ (?:of|the)|how does .{1,40} "
    r"(?:change|affect|influence))\b",
    re.IGNORECASE,
)
_RELATION_ZH = re.compile(
    r"关系|关联|联系(?!方式|电话|人)|依赖|影响|导致|造成|引起|引发|触发|隶属|属于|上级|下级|汇报|"
    r"为什么|为何|原因|后果|"
    r"源自|作用|会怎样|涉及|经过哪|的(?:导演|作者|母亲|父亲|上级|主管)的|(?<!怎么)(?:怎么|如何)"
    r"连接的|由哪个|怎样影响",
    re.IGNORECASE,
)
_FACT = re.compile(
    r"^(?:and |so )?(?:who|whom|whose|when|where|how (?:many|much|long|often|far|tall|old|heavy|"
    r"big|"
    r"large|high|deep|wide|fast)|in (?:what|which)|at (?:what|which)|name (?:the|a|all)|"
    r"what (?:is|are|was|were) the \w+ of|what (?:year|colour|color|percentage|share|date|number)"
    r")\b",
    re.IGNORECASE,
)
_FACT_ZH = re.compile(
    r"多少|多长|多久|多高|多大|多重|多远|哪年|哪一年|几[年月天名个台次号点]|什么时候|何时|谁|"
    r"在哪|哪里|哪座|哪位|"
    r"哪些国家|哪个(?:城市|版本|国家|端口)|是什么(?:颜色|意思)?[?？]?$|叫什么|什么是|地址|日期|"
    r"编号",
    re.IGNORECASE,
)


_COMPARISON_WORDS = frozenset(
    "compare compares compared comparing comparison than difference differences differ differs "
    "different differing versus vs similarity similarities distinguish distinguishes pros "
    "advantage advantages disadvantage disadvantages rather apart same rank which both or who "
    "better quicker faster cheaper safer".split()
)
_RELATION_WORDS = frozenset(
    "related relates relation relations relationship relationships depend depends dependency "
    "dependencies reports report belongs belong connected connection connections link linked links "
    "affect affects affected impact influence influences contribute contributes cause causes "
    "caused "
    "leads lead led why because trigger triggers triggered responsible consequence consequences "
    "role made happens follow follows derive derives derived involved supervise supervises "
    "supervisor change".split()
)
_FAQ_WORDS = frozenset("how i we you one steps possible allowed ok okay now my".split())
_WORDS = re.compile(r"[a-z']+")
_HAN = re.compile("[\u3400-\u9fff]")


def kind_of(text: str) -> Guess:
    """The kind of one question by itself; ``fact`` where nothing says otherwise."""
    head = simplified(text[:READ_CHARACTERS].strip())
    if len(head) <= CHAT_CHARACTERS and _CHAT.fullmatch(head):
        return Guess("chat", sure=True)
    if _HAN.search(head):
        kind = _chinese(head)
        sure = _FACT_ZH
    else:
        kind = _english(head)
        sure = _FACT
    return Guess("fact", sure.search(head) is not None) if kind is None else Guess(kind, sure=True)


def _english(head: str) -> QueryKind | None:
    words = set(_WORDS.findall(head.lower()))
    if _OUT_OF_SCOPE.search(head):
        return "out_of_scope"
    if not _COMPARISON_WORDS.isdisjoint(words) and _COMPARISON.search(head):
        return "comparison"
    if not _RELATION_WORDS.isdisjoint(words) and _RELATION.search(head):
        return "relation"
    return "faq" if not _FAQ_WORDS.isdisjoint(words) and _FAQ.search(head) else None


def _chinese(head: str) -> QueryKind | None:
    if _OUT_OF_SCOPE_ZH.search(head):
        return "out_of_scope"
    if _COMPARISON_ZH.search(head):
        return "comparison"
    if _RELATION_ZH.search(head):
        return "relation"
    return "faq" if _FAQ_ZH.search(head) else None
