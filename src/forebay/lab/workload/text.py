"""Text of exactly n laboratory tokens, in English or Chinese, from a number alone.

Equal numbers give equal text in every process. A text opens with words chosen by 64 mixed bits,
so that different texts differ from their first tokens on (a prefix cache must not find what a
real one would not), and goes on with ready phrases, so that thousands of tokens cost microseconds.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from forebay.lab.workload.tokens import count_tokens, first_tokens

Language = Literal["en", "zh"]
OPENING_TOKENS = 4
PHRASE_TOKENS = 16
_PHRASES = 1024
_TAILS = 64
_MASK = (1 << 64) - 1

# Words of one token (at most four letters).
_SHORT = (
    "able acid aged also area army away baby back ball band bank base bath bear beat beds bell "
    "belt best bill bird blow blue boat body bond bone book born both bowl bulk burn bush busy "
    "call calm card care case cash cast cell chat chip city club coal coat code cold come cook "
    "cool cope copy core cost crew crop dark data date dawn days deal debt deep deny desk dial "
    "diet disc dish door dose down draw drop drug dual duke dust duty each earn ease east easy "
    "edge exit face fact fail fair fall farm fast fate fear feed feel feet fell file fill film "
    "find fine fire firm fish five flat flow food foot ford form fort four free from fuel full "
    "fund gain game gate gear gene gift girl give glad goal gold golf good gray grew grey grow "
    "gulf hair half hall hand hang hard harm head hear heat held help hero high hill hire hold "
    "hole home hope host hour huge hunt idea inch into iron item join jump jury just keen keep "
    "kind king knee know lack lady lake land lane last late lead left lend less life lift like "
    "line link list live load loan lock logo long look lord lose loss loud love luck made mail "
    "main make male many mark mass meal mean meat meet"
).split()
_LONG = (
    "about account address answer balance before between branch budget building business "
    "capacity certain change charge client closing company contract control country customer "
    "decision delivery department describe document employee engine evening example expense "
    "figure following general handbook history holiday improve include increase invoice journey "
    "language leading machine manager measure meeting message minister morning network number "
    "office operation opinion order package partner payment pension period policy position "
    "possible practice present pressure problem process produce program project question "
    "receipt record remember report request research response return review schedule science "
    "season section security service several standard station storage strategy student subject "
    "summary support surface system teacher together traffic training travel treatment trouble "
    "update vehicle version village weather weekend window without worker writing"
).split()
_CHINESE = (
    "差旅报销合同审批员工手册部门预算采购流程发票规定请假制度加班补贴培训计划绩效考核薪资等级"
    "网络账号密码重置服务器监控告警备份恢复数据保留权限申请设备领用会议室预订访客登记安全检查"
    "消防演练产品说明客户投诉退货换新物流配送库存盘点质量标准故障处理版本发布测试环境上线窗口"
    "知识检索问题回答文档更新搜索结果引用来源模型推理延迟吞吐队列缓存命中降级限流熔断重试超时"
    "北京上海广州深圳杭州成都武汉南京西安重庆天津苏州青岛长沙大连厦门宁波昆明沈阳济南"
)


def mixed(number: int) -> int:
    """64 well mixed bits of ``number`` (the finaliser of splitmix64)."""
    value = (number + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class TextMaker:
    """Writes texts of one language; keeps at most ``cached_blocks`` shared blocks."""

    def __init__(self, language: Language = "en", *, cached_blocks: int = 8192) -> None:
        english = language == "en"
        self._space = " " if english else ""
        self._words: Sequence[str] = _SHORT if english else sorted(set(_CHINESE))
        # The vocabulary is the same for all runs: texts are told apart by their numbers.
        rng = random.Random(20_231_116)  # noqa: S311 - words, no secret
        self._phrases = [self._phrase(rng, english) for _ in range(_PHRASES)]
        self._tails = [
            [self._space.join(rng.choices(self._words, k=length)) for _ in range(_TAILS)]
            for length in range(PHRASE_TOKENS)
        ]
        self._block = lru_cache(maxsize=cached_blocks)(self.text)

    @property
    def cached_blocks(self) -> int:
        """How many shared blocks are kept now."""
        return self._block.cache_info().currsize

    def text(self, number: int, tokens: int) -> str:
        """A text of exactly ``tokens`` tokens that depends on ``number`` (and the language)."""
        bits = mixed(number)
        words, opening = self._words, range(min(tokens, OPENING_TOKENS))
        parts = [words[(bits >> (12 * place)) % len(words)] for place in opening]
        phrases, rest = divmod(max(0, tokens - OPENING_TOKENS), PHRASE_TOKENS)
        if phrases == 1:
            parts.append(self._phrases[(bits >> 48) % _PHRASES])
        elif phrases:
            chance = random.Random(bits)  # noqa: S311 - words, no secret
            parts += chance.choices(self._phrases, k=phrases)
        if rest:
            parts.append(self._tails[rest][(bits >> 58) % _TAILS])
        return self._space.join(parts)

    def blocks(self, ids: Sequence[int], block_tokens: int, tokens: int) -> str:
        """The first ``tokens`` tokens of the blocks ``ids``: equal ids, equal text."""
        whole, rest = divmod(tokens, block_tokens)
        parts = [self._block(number, block_tokens) for number in ids[:whole]]
        if rest and whole < len(ids):
            parts.append(first_tokens(self._block(ids[whole], block_tokens), rest))
        return self._space.join(parts)

    def _phrase(self, rng: random.Random, english: bool) -> str:
        if not english:
            characters = rng.choices(self._words, k=PHRASE_TOKENS - 2)
            return "".join([*characters[:7], "，", *characters[7:], "。"])
        while True:
            words = [rng.choice(rng.choice((_SHORT, _LONG))) for _ in range(PHRASE_TOKENS)]
            sizes = itertools.accumulate(count_tokens(word) for word in words)
            # A phrase ends with a full stop, itself a token.
            for length, size in enumerate(sizes, start=1):
                if size == PHRASE_TOKENS - 1:
                    return " ".join(words[:length]) + "."
