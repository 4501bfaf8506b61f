"""The words of a tuning report, in English and Chinese."""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {
    "tune_title": ("Tuning of {corpus}", "调优报告：{corpus}"),
    "tune_source_labels": ("labelled questions", "带标注的问题"),
    "tune_source_judge": ("questions labelled by a judge", "由评判模型标注的问题"),
    "tune_source_headings": ("questions made of headings", "由标题生成的问题"),
    "tune_asked": (
        "{tuning} questions to tune on, {held} held out",
        "{tuning} 个问题用于调优，{held} 个留作检验",
    ),
    "tune_quality": ("nDCG@{depth}", "nDCG@{depth}"),
    "tune_cpu": ("processor time of a query", "每次查询的处理器时间"),
    "tune_p99": ("P99 of a query", "查询耗时 P99"),
    "tune_p50": ("P50 of a query", "查询耗时 P50"),
    "tune_memory": ("index", "索引大小"),
    "tune_chunks": ("chunks", "分块数"),
    "tune_words_only": ("answered by words alone", "仅用词检索即可作答"),
    "tune_by_latency": ("Quality against latency", "质量与延迟"),
    "tune_by_memory": ("Quality against memory", "质量与内存"),
    "tune_front_section": ("The front", "前沿"),
    "tune_role": ("trial", "试验"),
    "tune_tried": ("tried", "尝试过"),
    "tune_front": ("on the front", "前沿上"),
    "tune_eligible": ("on the front, good enough", "前沿上且质量足够"),
    "tune_chosen": ("the knee: chosen", "拐点：选定"),
    "tune_base": ("before", "调优前"),
    "tune_number": ("trial", "试验"),
    "tune_settings": ("settings", "设置"),
    "tune_held_out": ("Before and after, on the held-out questions", "留出问题上的前后对比"),
    "tune_change": (
        "Quality changes by {mean:+.4f}, 95 % interval {low:+.4f} to {high:+.4f}.",
        "质量变化 {mean:+.4f}，95% 区间 {low:+.4f} 至 {high:+.4f}。",
    ),
    "tune_same": (
        " It holds 0: the change is within noise.",
        "区间含 0：变化在噪声之内。",
    ),
    "tune_cheaper": (
        " Take the patch over for its latency or memory only; else keep the settings in force.",
        "只有为了延迟或内存才值得采用补丁，否则请保留现行设置。",
    ),
    "tune_noise": (
        "Keep the settings in force: nothing was gained beyond noise on the held-out questions",
        "请保留现行设置：留出问题上没有超出噪声的改进",
    ),
    "tune_answers": (
        "With the chosen settings more is refused that has an answer, or answered that has none",
        "采用选定的设置后，有答案却拒答、或无答案却作答的更多",
    ),
    "answers_told": ("Answers on questions nobody tuned on", "未用于调优的问题上的回答"),
    "tune_kept": (
        "Nothing that was tried is better placed than the settings in force.",
        "尝试过的设置都不优于现行设置。",
    ),
    "tune_knee_note": (
        (
            "The front holds what no other trial beats in quality, latency and memory at once. "
            "The knee lies farthest above the plane through its ends; latency and memory count as "
            "ratios. Trials more than {loss} of quality below the settings in force cannot be "
            "chosen."
        ),
        (
            "前沿由质量、延迟、内存三方面都没有被其他试验同时超过的试验组成。拐点离过前沿两端的平面最远；"
            "延迟和内存按比率计。比现行设置的质量低 {loss} 以上的试验不会被选中。"
        ),
    ),
    "tune_latency_note": (
        (
            "One question at a time, the middle of several rounds; embedding a question counts "
            "where it was needed, with what it cost when it was measured alone."
        ),
        "每次一个问题，取多轮的中位数；需要向量时计入问题的向量化耗时，按单独测得的值计。",
    ),
    "tune_patch": ("The patch", "配置补丁"),
    "tune_failed": ("Could not be measured", "未能测量"),
    "tune_reason": ("reason", "原因"),
    "tune_worse": (
        "The chosen settings are worse on the held-out questions; do not take them over",
        "选定的设置在留出问题上更差；请勿采用",
    ),
    "tune_loss": (
        (
            "The chosen settings lost more on the held-out questions than may be lost, though "
            "chance may have done it; tune on more questions before taking them over"
        ),
        "选定的设置在留出问题上的损失超过了允许值，虽然可能出于偶然；采用之前请用更多问题调优",
    ),
    "tune_steps": ("Steps", "步骤"),
    "tune_step_labels": ("labels", "标注"),
    "tune_step_retrieval": ("retrieval", "检索"),
    "tune_seconds": ("seconds", "秒"),
}
