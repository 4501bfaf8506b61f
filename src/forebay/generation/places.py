"""Countries and the provinces of China: their names in both languages, short names and capitals.

江浙沪 lists three provinces, Guangzhou lies in one that 粤 stands for, and "other provinces" means
no country.
"""

from __future__ import annotations

import re
from functools import lru_cache

_PROVINCES = """
北京 京/天津 津/河北 冀 石家庄/山西 晋 太原/内蒙古 蒙 呼和浩特/辽宁 辽 沈阳/吉林 吉 长春
黑龙江 黑 哈尔滨/上海 沪/江苏 苏 江 南京/浙江 浙 杭州/安徽 皖 合肥/福建 闽 福州/江西 赣 南昌
山东 鲁 济南/河南 豫 郑州/湖北 鄂 武汉/湖南 湘 长沙/广东 粤 广州 深圳/广西 桂 南宁/海南 琼 海口
重庆 渝/四川 川 蜀 成都/贵州 黔 贵 贵阳/云南 滇 云 昆明/西藏 藏 拉萨/陕西 陕 秦 西安
甘肃 甘 陇 兰州/青海 青 西宁/宁夏 宁 银川/新疆 新 乌鲁木齐/香港 港/澳门 澳/台湾 台 台北
"""
"""A province, its short names of one character, and cities in it that are asked for most."""
_COUNTRIES = """
美国 usa america united-states/英国 uk britain england united-kingdom/日本 japan/韩国 南韩 korea
德国 germany/法国 france/意大利 italy/西班牙 spain/葡萄牙 portugal/荷兰 netherlands/比利时 belgium
瑞士 switzerland/奥地利 austria/瑞典 sweden/挪威 norway/丹麦 denmark/芬兰 finland/冰岛 iceland
爱尔兰 ireland/波兰 poland/捷克 czechia czech-republic/斯洛伐克 slovakia/斯洛文尼亚 slovenia
匈牙利 hungary/克罗地亚 croatia/塞尔维亚 serbia/希腊 greece/罗马尼亚 romania/保加利亚 bulgaria
爱沙尼亚 estonia/拉脱维亚 latvia/立陶宛 lithuania/卢森堡 luxembourg/马耳他 malta/乌克兰 ukraine
俄罗斯 russia/土耳其 turkey/以色列 israel/埃及 egypt/摩洛哥 morocco/尼日利亚 nigeria/肯尼亚 kenya
南非 south-africa/沙特阿拉伯 沙特 saudi-arabia/阿联酋 uae/伊朗 iran/印度 india/巴基斯坦 pakistan
孟加拉国 bangladesh/斯里兰卡 sri-lanka/尼泊尔 nepal/泰国 thailand/越南 vietnam/老挝 laos
缅甸 myanmar/柬埔寨 cambodia/马来西亚 malaysia/印度尼西亚 印尼 indonesia/菲律宾 philippines
新加坡 singapore/蒙古国 mongolia/澳大利亚 澳洲 australia/新西兰 new-zealand/加拿大 canada
墨西哥 mexico/巴西 brazil/阿根廷 argentina/智利 chile/哥伦比亚 colombia/秘鲁 peru/古巴 cuba
"""
_KNOWN = 1024


def _entries(written: str) -> list[list[str]]:
    return [entry.split() for entry in written.strip().replace("\n", "/").split("/")]


CITIES = frozenset("香港 澳门 新加坡".split())
"""Cities that are more than that."""
ABROAD = frozenset([*(names[0] for names in _entries(_COUNTRIES)), "香港", "澳门", "台湾"])
"""What is meant by no "other provinces", states or cities of a country."""
_SHORT = {short: names[0] for names in _entries(_PROVINCES) for short in names if len(short) == 1}
_LIES_IN = {city: names[0] for names in _entries(_PROVINCES) for city in names[1:] if len(city) > 1}
_NAMES: dict[str, tuple[str, ...]] = {name: (name,) for name in (*_SHORT.values(), *_LIES_IN)}
_NAMES |= dict.fromkeys(("东北", "东三省"), ("辽宁", "吉林", "黑龙江"))
_NAMES |= {name.replace("-", " "): (names[0],) for names in _entries(_COUNTRIES) for name in names}
_RUN = f"[{''.join(_SHORT)}]"


def _any_of(names: list[str]) -> str:
    """A pattern that is soon told where none begins."""
    firsts = "".join(sorted({name[0] for name in names}))
    return f"(?=[{firsts}])(?:{'|'.join(sorted(names, key=len, reverse=True))})"


_PLACE = re.compile(
    rf"\b{_any_of([name for name in _NAMES if name.isascii()])}\b"
    rf"|{_any_of([name for name in _NAMES if not name.isascii()])}"
    rf"|(?P<run>{_RUN}{{2,}})"
)
_ONLY_PLACES = re.compile(
    rf"(?:{_PLACE.pattern}|[、,，;；/& 省市两三四五等]|\band\b|和|及|自治区|特别行政区|地区?)+"
    rf"|(?P<short>{_RUN})"
)


def places_in(folded: str) -> frozenset[str]:
    """The places that a text names; provinces by short names where two of these meet."""
    return frozenset(
        place
        for found in _PLACE.finditer(folded)
        for place in (map(_SHORT.__getitem__, found[0]) if found["run"] else _NAMES[found[0]])
    )


@lru_cache(maxsize=_KNOWN)
def listed(cell: str) -> frozenset[str]:
    """The places that a cell consists of; none where it says anything else."""
    only = _ONLY_PLACES.fullmatch(cell)
    if only is None:
        return frozenset()
    return frozenset((_SHORT[cell],)) if only["short"] else places_in(cell)


def around(places: frozenset[str]) -> frozenset[str]:
    """Places, and the provinces that cities among them lie in."""
    return places | {_LIES_IN[place] for place in places if place in _LIES_IN}


def in_other_words(key: str) -> str:
    """A pattern for what else stands for a Chinese place; "" where it is none.

    Short names beside others; what it lies in only where that names a row.
    """
    province = _LIES_IN.get(key, key)
    if province not in _SHORT.values():
        return "|".join(sorted(places_in(key))) if re.fullmatch(f"{_RUN}{{2,}}", key) else ""
    short = f"[{''.join(one for one, name in _SHORT.items() if name == province)}]"
    wider = "|".join(name for name, places in _NAMES.items() if province in places and name != key)
    row = rf"|(?:^|\n)\W*[^|\n]{{0,20}}(?:{wider})[^|\n]{{0,20}}\|" if wider else ""
    return f"{short}(?={_RUN})|(?<={_RUN}){short}{row}"
