"""The words of a report, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.reasons import REASONS, Reason

LANGUAGES = ("en", "zh")

_TEXTS: dict[str, tuple[str, str]] = {
    # axes, legends and tips
    "all": ("all", "全部"),
    "kind": ("kind", "请求类别"),
    "quantile": ("quantile", "分位"),
    "at_s": ("from, s", "开始，秒"),
    "time_s": ("intended start, s", "计划开始时间，秒"),
    "seconds": ("seconds", "秒"),
    "latency_s": ("latency", "延迟"),
    "ttft_s": ("time to first token", "首 token 延迟"),
    "itl_s": ("time between tokens", "token 间延迟"),
    "total_s": ("total time", "总耗时"),
    "per_s": ("requests/s", "请求/秒"),
    "series": ("rate", "速率"),
    "offered": ("offered", "发起"),
    "achieved": ("answered", "已答"),
    "goodput": ("good", "有效"),
    "share": ("share", "占比"),
    "good_share": ("good answers", "有效应答占比"),
    "count": ("requests", "请求数"),
    "low_s": ("at least, s", "不少于，秒"),
    "high_s": ("less than, s", "少于，秒"),
    "status": ("outcome", "结果"),
    "rate": ("rate, requests/s", "速率，请求/秒"),
    "rate_per_s": ("rate, requests/s", "速率，请求/秒"),
    "verdict": ("verdict", "判断"),
    "figure": ("figure", "指标"),
    "change": ("change", "变化"),
    "low": ("interval from", "区间下限"),
    "high": ("interval to", "区间上限"),
    # what became of a request
    "good": ("good", "有效"),
    "late": ("whole, but late", "完整但超时"),
    "ok": ("whole", "完整"),
    "refused": ("refused", "被拒绝"),
    "http_error": ("HTTP error", "HTTP 错误"),
    "timeout": ("timed out", "等待超时"),
    "connect_failed": ("no connection", "连接失败"),
    "cut": ("cut off", "中途断开"),
    "error_event": ("error in the stream", "流中报错"),
    "malformed": ("not the protocol", "不合协议"),
    "disconnected": ("left on purpose", "主动离开"),
    "not_sent": ("not sent", "未发出"),
    # the page
    "language_tag": ("en", "zh-CN"),
    "no_script": (
        "The charts need JavaScript; it is inside this file.",
        "图表需要 JavaScript，脚本已在本文件内。",
    ),
    "bench": ("load test", "压测"),
    "simulation": ("simulation in virtual time", "虚拟时间仿真"),
    "title_run": ("Run against {target}", "运行报告：{target}"),
    "line": ("{head}: {told}", "{head}：{told}"),
    "not_valid": ("This result is not valid", "本次结果无效"),
    "seed": ("seed", "种子"),
    "commit": ("commit", "提交"),
    "cores": ("{count} cores", "{count} 核"),
    "over_time": ("Over time", "随时间变化"),
    "distributions": ("Distributions", "分布"),
    "by_kind": ("By kind of request", "按请求类别"),
    "what_ran": ("What was run", "运行条件"),
    "chart_rates": ("Offered, answered and good requests a second", "每秒发起、已答和有效的请求数"),
    "chart_status": ("What became of the requests", "请求的结果"),
    "chart_latency": ("{measure} over time", "{measure}随时间变化"),
    "chart_heat": ("{measure}: how many took how long", "{measure}：各时刻的分布"),
    "goodput_card": ("goodput", "有效吞吐"),
    "goodput_note": ("good answers a second", "每秒有效应答"),
    "offered_card": ("offered", "发起速率"),
    "offered_note": ("requests a second", "每秒请求"),
    "ttft": ("time to first token", "首 token 延迟"),
    "itl": ("time between tokens", "token 间延迟"),
    "tpot": ("time per output token", "每 token 耗时"),
    "total": ("total time", "总耗时"),
    "generator": ("load generator", "压测端"),
    "generator_note": ("late at P99; CPU {cpu}", "P99 发送滞后；CPU {cpu}"),
    "tenant": ("tenant", "租户"),
    "none": ("(none)", "（无）"),
    "sent": ("sent", "发出"),
    "goodput_per_s": ("good/s", "有效/秒"),
    "input_tokens": ("input tokens", "输入 token"),
    "output_tokens": ("output tokens", "输出 token"),
    "output_tokens_per_s": ("output tokens/s", "输出 token/秒"),
    "mean": ("mean", "平均"),
    "max": ("max", "最大"),
    "message": ("first message", "首条信息"),
    "http_status": ("HTTP status", "HTTP 状态码"),
    "cache_tier": ("cache: {tier}", "缓存：{tier}"),
    "rung": ("rung", "梯级"),
    "workload": ("Workload", "负载"),
    "options": ("Options", "选项"),
    "versions": ("Versions", "版本"),
    "engine": ("Engine", "引擎"),
    "lateness": ("sent after the intended start", "发送滞后"),
    "cpu_share": ("CPU of one core", "单核 CPU 占用"),
    "max_in_flight": ("most in flight", "最大在途请求"),
    "connections": ("connections opened", "打开的连接"),
    "processes": ("processes", "进程数"),
    "valid": ("valid", "有效"),
    "yes": ("yes", "是"),
    "no": ("no", "否"),
    # ramps
    "title_ramp": ("Ramp against {target}", "爬坡报告：{target}"),
    "steps_not_valid": (
        "Some steps are not valid: the load generator was the bottleneck",
        "部分步骤无效：瓶颈在压测端",
    ),
    "knee": ("knee", "拐点"),
    "at_least_good": ("highest rate with {share} good", "有效应答不低于 {share} 的最高速率"),
    "none_found": ("none", "没有"),
    "too_much": ("too much", "过载"),
    "lowest_bad": ("lowest rate below that", "达不到的最低速率"),
    "healthy": ("healthy", "健康"),
    "unhealthy": ("not healthy", "不健康"),
    "undecided": ("generator too slow", "压测端不足"),
    "steps": ("Steps", "步骤"),
    "runs": ("runs", "运行次数"),
    "chart_knee": ("Share of good answers by rate", "各速率的有效应答占比"),
    "chart_by_rate": ("Total time by rate", "各速率的总耗时"),
    # comparisons
    "title_compare": ("{before} against {after}", "{before} 与 {after} 对比"),
    "confidence": (
        "All intervals together hold with {share} confidence.",
        "所有区间同时成立的置信度为 {share}。",
    ),
    "warnings": ("Read this with care", "请谨慎解读"),
    "beyond_noise": ("What changed beyond noise", "超出噪声的变化"),
    "nothing_changed": ("Nothing changed beyond noise.", "没有超出噪声的变化。"),
    "differences": ("What differs between the set-ups", "两次运行的条件差异"),
    "chart_changes": ("Change with its interval", "变化及其区间"),
    "before": ("before", "之前"),
    "after": ("after", "之后"),
    "verdict_same": ("no change beyond noise", "无超出噪声的变化"),
    "verdict_unknown": ("cannot tell", "无法判断"),
    "verdict_better": ("better", "变好"),
    "verdict_worse": ("worse", "变差"),
    "verdict_higher": ("higher", "变高"),
    "verdict_lower": ("lower", "变低"),
    "figure_goodput_per_s": ("good answers a second", "每秒有效应答"),
    "figure_ok_per_s": ("whole answers a second", "每秒完整应答"),
    "figure_goodput_share": ("share of good answers", "有效应答占比"),
    # evaluations
    "title_eval": ("Evaluation of {target}", "评测报告：{target}"),
    "title_eval_compare": ("{before} against {after}: quality", "{before} 与 {after} 的质量对比"),
    "evaluation": ("evaluation", "评测"),
    "language": ("language", "语言"),
    "en": ("English", "英文"),
    "zh": ("Chinese", "中文"),
    "measure": ("measure", "指标"),
    "value": ("mean", "均值"),
    "p_value": ("p", "p 值"),
    "holm": ("p, Holm", "p 值（Holm）"),
    "set": ("set", "数据集"),
    "questions": ("questions", "问题数"),
    "documents": ("documents", "文档数"),
    "failed": ("failed", "失败"),
    "questions_failed": ("Not every question was answered", "有问题没有得到回答"),
    "measures_notes": (
        "Bars are 95 % intervals of the mean over questions (bootstrap).",
        "横线为问题均值的 95% 区间（自助法）。",
    ),
    "rungs": ("rungs", "梯级"),
    "interval": ("interval", "区间"),
    "less_is_better": ("less is better", "越小越好"),
    "measures_retrieval": ("Retrieval", "检索"),
    "measures_answers": ("Answers", "回答"),
    "measures_judge": ("Judge", "裁判"),
    "measures_computed_by": ("measures by {name}", "指标由 {name} 计算"),
    "latency_stage": ("seconds", "耗时"),
    "search": ("search", "检索"),
    "answer": ("answer", "回答"),
    "set_questions": ("{questions} questions", "{questions} 个问题"),
    "set_counts": (
        "{questions} questions, {documents} documents",
        "{questions} 个问题，{documents} 篇文档",
    ),
    "paired": (
        (
            "Paired by question; each interval holds by itself with {share} confidence. "
            "Latency is a ratio of geometric means."
        ),
        "按问题配对；每个区间各自的置信度为 {share}。延迟为几何均值之比。",
    ),
    "refused_with_answer": ("refused, though there is an answer", "有答案却拒答"),
    "answered_without_answer": ("answered, though there is none", "无答案却作答"),
    "told_as_nearest": ("quoted as the nearest, not as the answer", "只作为最接近的内容给出"),
    "failures": (
        "What went wrong: {shown} of {count} questions, worst first",
        "出错的问题：{count} 个中的 {shown} 个，最严重的在前",
    ),
    "question": ("question", "问题"),
    "failure_why": ("what went wrong", "错在哪里"),
    "failure_expected": ("expected", "应为"),
    "failure_said": ("said", "所答"),
    "failure_found": ("found first", "最先找到"),
    "failure_no_answer": ("no answer", "没有答案"),
    "answered_wrong": ("answered without a right answer", "作答，但没有正确答案"),
    "not_found": ("no relevant document found", "没有找到相关文档"),
    "em": ("exact match", "完全匹配"),
    "f1": ("F1", "F1"),
    "answer_found": ("answer found in what is said", "回答中含正确答案"),
    "support": ("statements backed by what is cited", "引用支撑的陈述占比"),
    "citation_precision": ("citation precision", "引用准确率"),
    "citation_recall": ("citation recall", "引用召回率"),
    "search_s": ("time of a search", "检索耗时"),
    "answer_s": ("time of an answer", "回答耗时"),
    # the proof
    "proof_title": ("The same traffic, with and without admission", "同样的流量，有无准入控制"),
    "pass_through": ("pass-through", "直通"),
    "forebay": ("Forebay", "Forebay"),
    "pass_through_title": ("Plain pass-through to one engine", "直通同一引擎，无准入控制"),
    "forebay_title": (
        "Forebay's admission before the same engine",
        "同一引擎，前面有 Forebay 准入控制",
    ),
    "proof_time": ("seconds", "时间，秒"),
    "proof_turn_heavy": ("from here {share} are heavy", "此后 {share} 为重请求"),
    "proof_turn_medium": ("from here {share} are medium", "此后 {share} 为中等请求"),
    "proof_turn_parts": (
        "from here {share} are long texts, answered in parts",
        "此后 {share} 为分段应答的长文本",
    ),
    "proof_good": ("answered in time", "按时应答"),
    "proof_lost": ("too late or never", "超时或无应答"),
    "proof_refused": ("refused at once, told when to retry", "立即拒绝，并告知何时重试"),
    "proof_before": ("light in time, before", "轻请求按时应答，之前"),
    "proof_light": ("light in time, {mix}", "轻请求按时应答，{mix}"),
    "proof_larger": ("the larger ones in time", "较大的请求按时应答"),
    "proof_ttft_p50": ("TTFT of light, P50", "轻请求首 token 延迟 P50"),
    "proof_ttft_p99": ("TTFT of light, P99", "轻请求首 token 延迟 P99"),
    "proof_told": ("refused with retry-after, light + larger", "拒绝并附 retry-after，轻 + 较大"),
    "proof_refused_p99": ("refused after, P99", "拒绝所需时间 P99"),
    "proof_compared": ("Both ways, with larger requests", "两种方式，有较大的请求时"),
    "proof_notes": (
        (
            "TTFT: a light request without an answer counts with its whole deadline, a lower "
            "bound. Refused after: from the intended start until the client knew."
        ),
        (
            "首 token 延迟：没有应答的轻请求按其整个截止时间计入，是下限。"
            "拒绝所需时间：从计划的开始时刻到客户端得知为止。"
        ),
    ),
    "proof_setting": (
        (
            "Real: HTTP, retrieval, prompts, admission, {rate} requests/s. "
            "Simulated: one engine ({profile}), with real time passing."
        ),
        (
            "真实：HTTP、检索、提示词、准入控制、每秒 {rate} 个请求。"
            "仿真：一个引擎（{profile}），按真实时间运行。"
        ),
    ),
    "proof_light_phase": ("light requests alone", "只有轻请求"),
    "proof_heavy_phase": ("with heavy ones", "有重请求"),
    "proof_medium_phase": ("with medium ones", "有中等请求"),
    "proof_parts_phase": ("with texts answered in parts", "有分段应答的长文本"),
    "proof_heavy_about": ("heavy requests", "重请求"),
    "proof_medium_about": ("medium requests", "中等请求"),
    "proof_parts_about": ("texts answered in parts", "分段应答的长文本"),
    "proof_core": ("the {which} used {share} of a core", "{which}用掉了一个核的 {share}"),
    "proof_gateway": ("gateway", "网关"),
    "proof_engine": ("engine", "引擎"),
    "proof_verdict": (
        (
            "With {mix} about, {through} of the light ones are answered in time by the "
            "pass-through, {admitted} by Forebay."
        ),
        "有{mix}时，按时应答的轻请求：直通 {through}，Forebay {admitted}。",
    ),
    "definitions": (
        "A good request was answered whole in time; latency counts from the intended start.",
        "有效请求指在截止时间内完整应答的请求。延迟从计划开始时间算起。",
    ),
}


class Words:
    """Texts of one language, by key; ``more`` are those of one kind of report alone."""

    def __init__(
        self, language: str = "en", more: Mapping[str, tuple[str, str]] | None = None
    ) -> None:
        if language not in LANGUAGES:
            raise ConfigError(f"reports are written in {' or '.join(LANGUAGES)}, not {language!r}.")
        self.language = language
        self._at = LANGUAGES.index(language)
        self._texts = {**_TEXTS, **REASONS, **(more or {})}

    def reasons(self, why: Sequence[Reason], recorded: Sequence[str] = ()) -> list[str]:
        """Reasons as sentences; results of earlier versions have only those that they recorded."""
        return [self(one.name).format(**one.figures) for one in why] or list(recorded)

    def __call__(self, key: str) -> str:
        """The text of a key; what has none (a status of a newer server, say) stands for itself."""
        found = self._texts.get(key)
        return found[self._at] if found else key
