"""What makes a result doubtful: recorded by name and figures, told in either language."""

from __future__ import annotations

import msgspec

REASONS: dict[str, tuple[str, str]] = {
    "generator_busy": (
        (
            "the generator used {used} of its core (more than {most}): lower the rate or give it "
            "more processes"
        ),
        "压测端用掉了一个核的 {used}（超过 {most}）：请降低速率，或增加进程",
    ),
    "generator_late": (
        (
            "one send in a hundred was {late} ms late or more (bound {most} ms): the generator's "
            "machine was busy"
        ),
        "每一百次发送有一次晚了 {late} ms 或更多（上限 {most} ms）：压测端所在的机器太忙",
    ),
    "generator_full": (
        (
            "{count} requests were not sent because {most} were already under way: raise that "
            "bound or lower the rate"
        ),
        "{count} 个请求没有发出，因为已有 {most} 个在途：请提高该上限，或降低速率",
    ),
    "generator_waited": (
        (
            "{count} requests waited because all {most} connections were in use: raise that bound "
            "or lower the rate"
        ),
        "{count} 个请求在等待，因为全部 {most} 个连接都在使用：请提高该上限，或降低速率",
    ),
    "sets_differ": (
        (
            "{name} is not the same set in both: {before} and {after} questions; the {shared} that "
            "both have are compared."
        ),
        "{name} 在两边不是同一个数据集：{before} 和 {after} 个问题，只比较共有的 {shared} 个。",
    ),
    "failed_before": (
        "in {name}, {count} questions of the first result failed.",
        "{name}：第一个结果中有 {count} 个问题失败。",
    ),
    "failed_after": (
        "in {name}, {count} questions of the second result failed.",
        "{name}：第二个结果中有 {count} 个问题失败。",
    ),
}
"""English and Chinese by name."""


class Reason(msgspec.Struct, frozen=True):
    """One of ``REASONS`` and the figures in it, as they are written."""

    name: str
    figures: dict[str, str] = {}

    def __str__(self) -> str:
        """In English, as results record it."""
        return REASONS[self.name][0].format(**self.figures)
