"""What a request is for, from its text: a question, a report, code, or work on a long text.

A linear model over a dozen features that cost microseconds, with weights set by hand and held to
public texts by ``tests/unit/query/test_scenes.py``: the scene with the highest sum, the first of
``SCENES`` among equals. Deterministic, in English and both scripts of Chinese.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import get_args

from forebay.folding import simplified
from forebay.kernel.context import SceneName
from forebay.kernel.stages import Message

SCENES: tuple[SceneName, ...] = get_args(SceneName)
HEAD_CHARACTERS, TASK_CHARACTERS = 1000, 400
"""Code is looked for in the beginning, a task in less of it and in as much of the end."""
LINE_CHARACTERS = 160
PAGE_TOKENS, DOUBLINGS = 250, 4.0
"""What is no longer than that is no document; ``DOUBLINGS`` later it is nothing else."""
LONG_ANSWER_TOKENS, SHORT_ANSWER_TOKENS = 1500, 256

WEIGHTS: Mapping[str, tuple[float, float, float, float]] = {
    # feature           faq  report  code  document
    "always":         (1.0,   0.0,   0.0,   0.0),
    "question":       (0.5,   0.0,   0.0,   0.0),
    "long":          (-1.0,   0.0,   0.0,   4.0),
    "orders_report":  (0.0,   2.5,   0.0,   0.0),
    "orders_summary": (0.0,   1.8,   0.0,   0.5),
    "orders_code":    (0.0,   0.0,   2.5,   0.0),
    "fence":          (0.0,   0.0,   2.5,   0.0),
    "code_lines":    (-1.0,   0.0,   4.0,  -1.0),
    "identifiers":    (0.0,   0.0,   1.2,   0.0),
    "code_words":     (0.0,   0.0,   1.6,   0.0),
    "long_answer":    (0.0,   0.3,   0.0,   0.0),
    "short_answer":   (0.3,  -0.3,   0.0,   0.0),
}  # fmt: skip
"""Each feature is from 0 to 1."""

_WORDS = re.compile(r"[a-z]+")
_MAKES = frozenset(
    "write draft prepare create generate produce compile compose make build put give need want "
    "like".split()
)
_REPORTS = frozenset(
    "report reports analysis analyses overview overviews essay essays briefing briefings memo "
    "memos whitepaper white review reviews assessment assessments proposal proposals article "
    "articles case study comparison evaluation summary writeup up plan outline "
    "presentation".split()
)
_SUMMARISES = frozenset(
    "summarise summarize analyse analyze compare discuss assess evaluate review outline recap tldr "
    "tl".split()
)
_CODES = frozenset(
    "function class script program code regex expression test tests sql query dockerfile makefile "
    "client endpoint decorator macro method bug loop module".split()
)
_MAKE = (
    r"(?:write|draft|prepare|create|generate|produce|compile|compose|make|build|put together|"
    r"give (?:me|us)|i(?:'d| would)? (?:need|want|like)|we need)"
)
_REPORT = (
    r"(?:reports?|analys[ie]s|overviews?|essays?|briefings?|memos?|white ?papers?|reviews?|"
    r"assessments?|proposals?|articles?|case study|study|comparison|evaluation|summary|write-?up|"
    r"plan|outline|presentation)"
)
_ORDERS_REPORT = re.compile(
    rf"(?:^|[.!?:;,\n]\s*|\b(?:please|you|to|now|then|and)\s+){_MAKE}\b(?:\s+(?:me|us))?"
    rf"\s+(?:an?|the|our|some|\d+)\s+(?:[\w'-]+\s+){{0,5}}?{_REPORT}\b"
    r"(?=\s+(?:on|of|about|for|that|which|in|with|from|to|comparing|covering|explaining|how|why)"
    r"\b|\s*[.:,\n]|\s*$)",
    re.IGNORECASE,
)
_ORDERS_REPORT_ZH = re.compile(
    r"(?:写|撰写|起草|生成|编写|出具|整理|准备|做|输出|拟|形成|出)(?:出|成)?(?:一|1)?[份篇个]"
    r".{0,30}?(?:报告|总结|分析|综述|方案|汇报|论文|文章|纪要|概述|评估|材料|提纲|摘要|计划书)"
    r"|(?:撰写|起草|编写|出具).{0,20}(?:报告|总结|综述|方案|文章|纪要)",
)
_ORDERS_SUMMARY = re.compile(
    r"(?:^|[.!?:;,\n]\s*|\b(?:please|you|to|now|then|and)\s+)(?:summari[sz]e|analy[sz]e|"
    r"compare and contrast|discuss|assess|evaluate|review the|outline the|recap)\b"
    r"|\btl;?dr\b",
    re.IGNORECASE,
)
_ORDERS_SUMMARY_ZH = re.compile(
    r"(?:^|[。！？，；：\n请帮我]|并)(?:详细|深入|全面|系统|逐条|简要)?(?:地)?"
    r"(?:总结|概括|归纳|汇总|梳理|综述|评估|分析)(?!师|员(?!工)|报告|化验|费|仪|会|人[员士])"
    r"|(?:对|把|将).{1,40}?(?:总结|概括|归纳|汇总|梳理|评估|分析)(?:一下|成|为|[，。；]|\s*\Z)",
)
_ORDERS_CODE = re.compile(
    rf"\b{_MAKE}\b(?:\s+(?:me|us))?\s+(?:an?|the|some)\s+(?:[\w#+.-]+\s+){{0,4}}?"
    r"(?:function|class|script|program|code|regex|regular expression|unit tests?|sql|query in sql|"
    r"dockerfile|makefile|api client|endpoint|decorator|macro)\b"
    r"|\b(?:refactor|debug|implement|fix|port|rewrite)\b(?:\s+[\w']+){0,4}?\s+(?:code|function|"
    r"class|method|script|program|module|bug|loop|query)\b",
    re.IGNORECASE,
)
_ORDERS_CODE_ZH = re.compile(
    r"(?:写|实现|编写|生成|给出)(?:一|1)?[个段份]?.{0,24}?(?:函数|代码|脚本|程序|正则|单元测试|接口|"
    r"查询语句|SQL)"
    r"|(?:重构|调试|修复|优化).{0,12}(?:代码|函数|程序|脚本|bug)",
    re.IGNORECASE,
)
_CODE_NAMES = frozenset(
    "python javascript typescript golang rust kotlin java php sql bash numpy pandas traceback "
    "segfault regex npm kubectl dockerfile typeerror keyerror valueerror indexerror importerror "
    "attributeerror nameerror nullpointerexception".split()
)
_CODE_PAIRS = re.compile(
    r"c\+\+|\bstack ?trace|\bsyntax ?error|\bunit tests?\b|\bsource code\b|\bcompiler\b",
    re.IGNORECASE,
)
_CODE_ZH = re.compile(
    r"(?<![资政票误品员区行])代码|报错|编译|函数|脚本|正则|堆栈|单元测试|源码|空指针"
)
_MARKS = frozenset("_().:>")
_IDENTIFIER = re.compile(
    r"\b[a-z][a-z0-9]*_[a-z0-9_]+\b|\b[a-z]+[a-z0-9]*[A-Z][A-Za-z0-9]+\b"
    r"|\b[A-Za-z_][\w.]*\(\)?|::\w|->\w|\b[\w-]+\.(?:py|js|ts|go|rs|java|cpp|c|h|sh|sql|yaml|toml)\b"
)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_CODE_LINE = re.compile(
    r"\s*(?:def|class|import|from|return|elif|else:|try:|except|raise|with|for|while|if|public|"
    r"private|static|const|let|var|function|func|fn|package|using|namespace|struct|SELECT|INSERT|"
    r"UPDATE|CREATE|FROM|WHERE)\b.*[:;,{}()=\]'\"]\s*|\s*(?:import|from|return|package|raise)\s+[\w.]+.*"
    r"|.*[;{}]\s*|\s*[\w.\[\]\"']+\s*[-+*/|]?=\s*\S.*|.*\)\s*:?\s*|\s*[)\]}],?;?\s*"
    r"|\s*(?:#|//|/\*|\*|@|\$ ).*|\s*File \".*\", line \d+.*|\s+at [\w.$]+\(.*\)"
)
_QUESTION = re.compile(
    r"[?？]\s*\Z|\A\W*(?:what|who|whom|whose|when|where|why|which|how|is|are|was|were|do|does|did|"
    r"can|could|may|should|will|would|has|have|had|am|tell me|i need to know)\b"
    r"|(?:吗|呢|么|什么|怎么|怎样|如何|为何|为什么|多少|哪|谁|几|是否|能否|可否)",
    re.IGNORECASE,
)


def scene_of(messages: Sequence[Message], max_tokens: int | None = None) -> SceneName:
    """The scene of a conversation; its last message decides. ``max_tokens`` is what was allowed."""
    text = messages[-1].content if messages else ""
    sums = [0.0] * len(SCENES)
    for name, value in features(text, max_tokens).items():
        for at, weight in enumerate(WEIGHTS[name]):
            sums[at] += weight * value
    return SCENES[sums.index(max(sums))]


def features(text: str, max_tokens: int | None = None) -> Mapping[str, float]:
    """What the model sees of a text: the features that are there, from 0 to 1."""
    han = 0 if text.isascii() else (len(text.encode("utf-8", "replace")) - len(text)) // 2
    tokens = han + (len(text) - han) / 4
    head, task = text[:HEAD_CHARACTERS], text
    if len(text) > 2 * TASK_CHARACTERS:
        task = f"{text[:TASK_CHARACTERS]}\n{text[-TASK_CHARACTERS:]}"
    if han:
        task = simplified(task)
    words = frozenset(_WORDS.findall(task.lower()))
    found = {"always": 1.0, "question": float(_QUESTION.search(task) is not None)}
    if tokens > PAGE_TOKENS:
        found["long"] = min(1.0, math.log2(tokens / PAGE_TOKENS) / DOUBLINGS)
    found |= _orders(task, words, han > 0)
    if "\n" in head:
        found["fence"] = float(_FENCE.search(head) is not None)
        found["code_lines"] = _code_lines(head)
    if not _MARKS.isdisjoint(head):
        found["identifiers"] = min(1.0, len(_IDENTIFIER.findall(head)) / 3)
    named = not words.isdisjoint(_CODE_NAMES) or (han > 0 and _CODE_ZH.search(task) is not None)
    found["code_words"] = float(named or _CODE_PAIRS.search(task) is not None)
    if max_tokens is not None:
        found["long_answer"] = float(max_tokens >= LONG_ANSWER_TOKENS)
        found["short_answer"] = float(max_tokens <= SHORT_ANSWER_TOKENS)
    return found


def _orders(task: str, words: frozenset[str], han: bool) -> dict[str, float]:
    """What is ordered; a pattern is tried only where one of its words is there."""
    makes = not words.isdisjoint(_MAKES)
    report = (makes and not words.isdisjoint(_REPORTS) and _ORDERS_REPORT.search(task)) or (
        han and _ORDERS_REPORT_ZH.search(task)
    )
    summary = (not words.isdisjoint(_SUMMARISES) and _ORDERS_SUMMARY.search(task)) or (
        han and _ORDERS_SUMMARY_ZH.search(task)
    )
    code = (not words.isdisjoint(_CODES) and _ORDERS_CODE.search(task)) or (
        han and _ORDERS_CODE_ZH.search(task)
    )
    return {
        "orders_report": float(bool(report)),
        "orders_summary": float(bool(summary)),
        "orders_code": float(bool(code)),
    }


def _code_lines(head: str) -> float:
    """Share of lines that read as code, of three at least."""
    lines = [line for line in head.splitlines() if line.strip()]
    if len(lines) < 3:
        return 0.0
    # No line of code is that long, and reading one that is takes its time.
    short = (line for line in lines if len(line) <= LINE_CHARACTERS)
    return sum(_CODE_LINE.fullmatch(line) is not None for line in short) / len(lines)
