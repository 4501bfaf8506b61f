"""Whether a question wants more than one document, by its words alone.

A comparison has two sides. A bridging question describes a thing by another ("who directed the
film that was shot in Leland", 执导《活着》的导演是哪里人): one document says which thing that is,
another says what is asked of it. A sure first hit then says nothing of the second document.
"""

from __future__ import annotations

import re

from forebay.folding import simplified
from forebay.kernel.stages import QueryKind

_READ_CHARACTERS = 400
_KINDS: frozenset[QueryKind] = frozenset({"comparison"})
"""Relations lost nothing by leaving early on any set (benchmarks/retrieval)."""

_DESCRIBED = re.compile(
    r"\b(?:the|a|an|another) (?:[\w'’-]+ ){1,4}?(?:that|who|whom|whose|which|where|featuring|"
    r"starring|directed|written|called|named)\b",
    re.IGNORECASE,
)
_ROLES = (
    "导演|编剧|演员|主演|作者|作家|歌手|乐队|作曲家?|画家|建筑师|设计师|创始人|发明者|发明人|"
    "主席|总统|总理|国王|皇帝|市长|校长|教练|队长|球员|球队|"
    "父亲|母亲|妻子|丈夫|儿子|女儿|哥哥|弟弟|姐姐|妹妹|老师|学生|上司|上级|下属|主管|负责人|经理|工程师|供应商|厂家|制造商"
)
_THINGS = (
    "母公司|子公司|公司|城市|国家|省份?|县|镇|大学|学校|电影|影片|电视剧|小说|书|专辑|歌曲?|杂志|报纸|部门|"
    "团队|产品|供应商|仓库|机构|组织"
)
_ASKS = "谁|哪|什么|何|几|多少|多大|多高|多长|多远"
_DESCRIBED_ZH = re.compile(
    # Somebody or something is named by what it did or is, and asked about. "X 的作者是谁" is plain:
    # there the role is what is asked for.
    rf"的(?:那[个位部家座本首支])?(?:{_ROLES}|{_THINGS})(?:的|[又也还]?(?:出生|毕业|位于|"
    rf"成立|总部|担任|来自|现任|曾经?|导演|写|拍|住|在|于|属于|是(?=哪里人|哪[国个年]|何时|几)))"
    rf"[^，。？?]{{0,12}}(?:{_ASKS})"
    rf"|(?:{_ASKS})[^，。？?]{{0,6}}的(?:{_ROLES}|{_THINGS})[^，。？?]{{1,12}}的(?:{_ROLES}|{_THINGS})"
)
_HAN = re.compile("[\u3400-\u9fff]")


def wants_several(question: str, kind: QueryKind | None) -> bool:
    """Whether one document cannot be enough; the same for the same words."""
    if kind in _KINDS:
        return True
    head = question[:_READ_CHARACTERS]
    if _HAN.search(head) is None:
        return _DESCRIBED.search(head) is not None
    return _DESCRIBED_ZH.search(simplified(head)) is not None
