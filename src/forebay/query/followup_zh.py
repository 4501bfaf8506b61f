"""Chinese follow-ups, matched on Simplified characters: what they leave out."""

from __future__ import annotations

import re
from collections.abc import Callable

from forebay.folding import simplified
from forebay.query.likes import in_place

_HAN = re.compile("[\u3400-\u9fff]")
_OPENING = re.compile(
    r"^(?:(?:那么|那(?![里边个些儿份项])|还有|另外|以及|然后|好的|嗯|请问|哦)[，,、。！!\s]*"
    r"|(?:好|谢谢[你您]?|多谢|明白了?|知道了|了解了?|对了)[，,、。！!\s]+)+"
)
_CASE = re.compile(r"^(?P<rest>[^，,。？?！!]{1,20}?)呢[？?。！!]*$")
_OTHER = re.compile(r"^(?P<rest>[^，,。？?！!]{1,20}?)呢[？?，,！!\s]+(?P<asked>.{2,})$")
"""Another case and a question of its own about it: 那病假呢？可以结转吗？"""
_COUNTED = re.compile(r"^(?P<rest>[^，,。？?！!]{1,8}?)(?:有|是|要)?(?:多少|几[个位名天]?)[？?]?$")
"""Another case where what is counted is left out: 上海有多少？"""
_NAME_ALONE = re.compile(r"^(?P<rest>[^，,。？?！!]{1,8}?)[？?]$")
_NOT_SO = (
    r"(?:(?:不(?:是|要|问)[^，,。？?！!]{1,12}(?=[，,])|不是|不对|不|我?(?:说|搞|弄|问|打|写)错了?|抱歉|"
    r"对不起|不好意思|等等|等一下|哦|啊)[，,。！!\s]*)"
)
_CORRECTED = re.compile(
    rf"^{_NOT_SO}*我(?:是说|说的是?|是指|指的是|问的是|想问的是|要问的是|的意思是)"
    rf"|^{_NOT_SO}+(?:应该是|而?是|我?[想要]?问)?"
)
_INSTEAD = re.compile(r"(?P<rest>[^，,。？?！!]{1,20})(?:[，,]\s*不是[^，,。？?！!]*)?[。！!]*$")
"""Another case in the place of what was asked: 不对，我是说X1."""
_NO_CASE = re.compile(
    r"[怎什谁哪几吗么]|多[少久长大高重远]|如何|为何|是否|何时|能不能|可不可以|有没有|^[你我您]们?$|"
    r"^(?:它|他|她|其|该|这|那)"
)
_REFERS = re.compile(
    r"(?P<own>(?:它们?|他们?|她们?)的|其(?=[\u4e00-\u9fff])(?![他它她中实余次间])|"
    r"该(?=[\u4e00-\u9fff]{2})"
    r"(?!怎|如|不|找|由|去|是|怎么|多少))"
    r"|(?P<it>它们?|(?<!其)[他她]们?(?!人)|前者|后者|[那这](?:里|儿|边)|上述(?:内容|情况)?|(?:这|那)"
    r"(?:个|件事|种情况)?"
    r"(?=$|[？?，,。]|(?:是|要|能|可|会|需|有|怎|多|什|为|在|由|谁|包|适|和|跟|与|对)))"
)
_FUNCTION = re.compile(
    r"请问|如果|关于|对于|为什么|为何|怎么|怎样|如何|什么|时候|多少|多久|可以|能不能|是否|有没有|"
    r"以及|还有|那么|"
    r"需要|应该|[那对在把给和跟与用从由是有要会能谁的，, 、呢吗吧还也又都就]"
)
_OWN = re.compile(r"[\u4e00-\u9fffA-Za-z0-9]{2,}")
_ASKING = re.compile(
    r"为什么|为何|怎么样|怎么办|怎么|怎样|如何|什么时候|什么|何时|多长时间|多少钱|多少|多久|多长|"
    r"多大|多高|多重|多远|"
    r"哪一?[年天个些里位种家]|哪里|哪儿|哪|几[年月天次个号点]|几|谁|是否|是不是|有没有|能不能|"
    r"可不可以|要不要|会不会|"
    r"可以|可否|能否|需要|应该|必须|最多|最少|最长|最晚|最早|一般|通常|大概|具体|吗|呢|么|"
    r"[要得能会该是有在由找到还也又都才就了的去给把被用]"
)
_ELLIPTIC = re.compile(
    r"^(?:还|也|又|都|一般|通常|大概|具体|最多|最少|最晚|最早|最长)*(?:需要|要|得|能|可以|可否|"
    r"能否|怎么|怎样|如何|多久|"
    r"多少|多长|多大|几|什么时候|什么|何时|谁|在哪|哪|为什么|为何|是否|是不是|有没有|有哪些|"
    r"有什么|会|该|应该|最多|最少|"
    r"最长|最晚|由谁|找谁|到期|包括|适用|是(?=.{1,6}吗))"
)
_GENERIC = re.compile(
    r"^(?:审批|审核|流程|费用|价格|期限|时间|条件|材料|标准|要求|范围|地点|方式|步骤|负责人|联系人|电话|地址|重量|尺寸|"
    r"功率|型号|保修期?|例外|后果|处罚|上限|下限|额度|频率)"
)
"""What everything has: such a question says whose only by what was said before."""
_FAILED = re.compile(
    r"^[\u4e00-\u9fff][不没](?:了|上|到|开|动)(?:了|的话)?(?:怎么办|怎么处理)[？?]?$"
)
_LEAD = re.compile(
    r"^(?:请问|请|我想(?:知道|问|了解)(?:一下)?|想(?:问|了解)(?:一下)?|告诉我|介绍(?:一下)?|说说|"
    r"关于|解释(?:一下)?|查(?:一下)?)"
    r"+[，,\s]*"
)
_TOPIC = re.compile(
    r"^(?P<topic>[^，,。？?！!]{2,18}?)(?:的)?(?:(?:应该|一般|通常|目前|现在|每年|最多|最少|最长|"
    r"最大|一共|总共|都|还|也|是|"
    r"有|要|需要|能|可以|会|该|由|被|在|从|为)*(?:多少|多久|多长|多大|多高|多重|多远|几|什么|"
    r"怎么|怎样|如何|为什么|为何|"
    r"哪|谁|何时|是否|是不是|有没有|能不能|可不可以|区别)|(?:可以|能|要|需要|有|是|会|包括|属于|"
    r"支持|适用)[^？?]{0,14}[吗么？?])"
)
_ACTION = re.compile(
    r"^(?:什么是|什么叫|谁(?:可以|能|负责|来)?|怎么|怎样|如何|在哪里?|哪里|可以|能不能|能否|能|谁来?|什么时候|我?该怎么|"
    r"我?要怎么)(?P<topic>[^，,。？?！!吗呢么]{2,14})"
)
_NEEDS = re.compile(
    r"^(?:那|还|也|都|一定)*(?:需要|要(?!是)|必须)(?:什么)?[^，,。才时后前怎什谁哪]{1,10}?[吗么]?[？?]?$"
)
"""What is needed, and not for what."""
_HAS = re.compile(r"^有[^，,。的]{1,4}吗[？?]?$")
_WITHIN = re.compile(r"^(?:期间|其间|之后|之前|以后|以前|当天|到期后|过期后|结束后)(?!的)")
_DONE = re.compile(r"^[\u4e00-\u9fff]了(?:的话)?[，,]?(?=[要还会能可怎该多找有])")
"""What has become of it: 丢了怎么办"""
_EACH = re.compile(
    r"^(?:一共|逾期|超时)?每一?(?:[\u4e00-\u9fff]{1,2}|平方米)"
    r"(?:要|有|是|收|能|可以)?(?:多少|几)[^，,。]{0,3}$"
)
_AT_TIMES = re.compile(
    r"^在?(?:周末|[周星]期?[一二三四五六日天]|节假日|早上|上午|中午|下午|晚上|夜里|白天|平时|工作日|国内|国外|"
    r"[\d一二三四五六七八九十]+[月点号])[也都还]?(?:可以|行|能|是|要|(?:可以|能)?(?:开门?|开放|营业|上班|休息|去|来|用))"
    r"[吗么][？?]?$"
)
"""When or where it is the same; what it is was said before."""
_OF_THINGS = re.compile(r"多[重大高宽厚快]|多少钱|贵|什么颜色|在哪")
"""What a thing has and what it is like has not: no price is heavy."""


def depends_zh(text: str) -> bool:
    """Whether a Chinese question, in Simplified characters, leaves out what it is about."""
    bare = _OPENING.sub("", text)
    if _case(bare) is not None or _corrected(text) is not None or _other(bare) is not None:
        return True
    return _reference(bare) is not None or _elliptic(bare)


def named_zh(text: str) -> str:
    """What a question names and asks nothing else about, where it may be another case."""
    bare = text[len(text) - len(_OPENING.sub("", simplified(text))) :]
    for pattern in (_COUNTED, _NAME_ALONE):
        found = pattern.match(simplified(bare))
        if found is not None and _NO_CASE.search(found["rest"]) is None:
            return bare[: found.end("rest")]
    return ""


def _case(bare: str) -> re.Match[str] | None:
    found = _CASE.match(bare)
    return None if found is None or _NO_CASE.search(found["rest"]) else found


def _corrected(text: str) -> re.Match[str] | None:
    begun = _CORRECTED.match(text)
    found = None if begun is None else _INSTEAD.match(text, begun.end())
    return None if found is None or _NO_CASE.search(found["rest"]) else found


def _other(bare: str) -> re.Match[str] | None:
    found = _OTHER.match(bare)
    if found is None or _NO_CASE.search(found["rest"]):
        return None
    asked = found["asked"]
    return found if _reference(asked) is not None or _elliptic(asked) else None


def _elliptic(bare: str) -> bool:
    """Whether a question begins with what it asks, and has nothing left that it asks about."""
    if _FAILED.match(bare):
        return True
    if len(bare) > 14:
        return False
    if any(each.match(bare) for each in (_NEEDS, _HAS, _WITHIN, _DONE, _AT_TIMES)):
        return True
    if _EACH.match(bare.rstrip("？?")):
        return True
    generic = _GENERIC.match(bare)
    if generic is not None:
        return not _OWN.search(_ASKING.sub("", bare[generic.end() :]))
    if not _ELLIPTIC.match(bare):
        return False
    left = "".join(_OWN.findall(_ASKING.sub("", bare)))
    return len(left) <= 2


def _reference(text: str) -> re.Match[str] | None:
    found = _REFERS.search(text)
    if found is None:
        return None
    before = _FUNCTION.sub("", text[: found.start()])
    return None if _OWN.search(before) else found


def carried_zh(text: str, earlier: str, topic_of: Callable[[str], str | None]) -> str:
    """The question with what the ``earlier`` one is about, which stands alone itself."""
    plain = simplified(text)
    corrected = _corrected(plain)
    if corrected is not None:
        rest = text[corrected.start("rest") : corrected.end("rest")].strip()
        topic = topic_of(earlier)
        if topic and earlier.startswith(topic) and "的" not in topic:
            return in_place(rest, earlier) or rest + earlier[len(topic) :]
        return _another(rest, earlier)
    opening = _OPENING.match(plain)
    start = opening.end() if opening is not None else 0
    bare, plain = text[start:], plain[start:]
    case = _case(plain)
    if case is not None:
        return _another(bare[: case.end("rest")], earlier)
    other = _other(plain)
    if other is not None:
        name, asked = bare[: other.end("rest")], bare[other.start("asked") :]
        return _with(name, asked, _reference(simplified(asked)))
    reference = _reference(plain)
    topic = topic_of(earlier)
    return f"{_ended(earlier)}{bare}" if topic is None else _with(topic, bare, reference)


def _another(rest: str, earlier: str) -> str:
    """The earlier question about something else: in the place of its like where that is found."""
    rest = rest.strip()
    name = rest.removesuffix("的")
    return in_place(name, earlier) or f"{_ended(earlier)}{rest}呢？"


def _with(topic: str, bare: str, reference: re.Match[str] | None) -> str:
    """A question about the ``topic``, in the place of what refers to it or before it."""
    if reference is not None and _OF_THINGS.search(simplified(bare)):
        topic = topic.rpartition("的")[0].strip() or topic
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


def _ended(question: str) -> str:
    text = question.rstrip()
    return text if text[-1:] in "?？。.!！" else text + "？"


def topic_zh(question: str) -> str | None:
    """What a question is about, if that can be cut out of it."""
    text = question.strip()
    plain = simplified(text)
    lead = _LEAD.match(plain)
    start = lead.end() if lead is not None else 0
    text, plain = text[start:], plain[start:]
    found = _ACTION.match(plain) or _TOPIC.match(plain)
    if found is None:
        return None
    topic = text[found.start("topic") : found.end("topic")].strip()
    return topic if _REFERS.search(simplified(topic)) is None else None
