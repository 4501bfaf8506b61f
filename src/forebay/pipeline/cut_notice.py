"""What an answer says of itself where a bound of this service cut it (F1.6)."""

from __future__ import annotations

import re

import msgspec

from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Finished, GenerationRequest
from forebay.query.language import language_of

NOTICES = {
    "en": "(This answer reached the length limit of this service and ends here.)",
    "zh": "（本回答达到了本服务的长度上限，到此为止。）",
    "zh-Hant": "（本回答達到了本服務的長度上限，到此為止。）",
}
_WORD = re.compile(r"[^\W\d_]{2}")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_DATA = re.compile(r"\s*(?:\{|\[(?!\^?\d{1,3}\])|<[A-Za-z!?/])")
_CODE = re.compile(
    r"\s*(?:def|class|import|from|return|public|private|static|const|let|var|function|func|"
    r"package|using|namespace|SELECT|INSERT|CREATE)\s.*|\s*#\s*include.*|.*[;{}]\s*|.*\)\s*:\s*"
)
_CODE_SHARE, _CODE_LINES = 0.6, 2
_WHOLE = re.compile(r"[.!?。！？…:：;；)）\]」』”\"'|`*]\Z")


def bounded(
    ctx: RequestContext, prompt: GenerationRequest, allowed_tokens: int, finished: Finished
) -> Finished:
    """The end of an answer that the engine cut: whether at another bound than the client's own."""
    most, own = min(prompt.max_output_tokens, allowed_tokens), prompt.sampling.max_tokens
    if own is not None and own <= most:
        return finished
    ctx.degrade("generation", "truncated", f"the answer was cut at its bound of {most} tokens")
    return msgspec.structs.replace(finished, bounded=True)


def cut_notice(text: str, prompt: GenerationRequest) -> str:
    """What to append to ``text``; empty where a sentence would break what it is: a form that was
    asked for, data, or nothing but code.

    In the language of the answer; in that of the question where the answer has none.
    """
    if prompt.sampling.formed or _DATA.match(text):
        return ""
    fence, prose = _read(text)
    if text.strip() and not prose.strip():
        return ""
    lines = [line for line in prose.splitlines() if line.strip()]
    if sum(_CODE.fullmatch(line) is not None for line in lines) >= max(
        _CODE_LINES, _CODE_SHARE * len(lines)
    ):
        return ""
    notice = NOTICES[_language(prose, prompt.language)]
    if not text.strip():
        return notice
    if fence:
        # What follows an open block would be read as code.
        return f"{'' if text.endswith(chr(10)) else chr(10)}{fence}\n\n{notice}"
    end = text.rstrip()
    return f"{'' if _WHOLE.search(end) else '…'}\n\n{notice}"


def _language(prose: str, asked: str) -> str:
    found = language_of(prose) if _WORD.search(prose) else asked
    if found == "other":
        return "en"
    if found == "mixed":
        found = asked
    return found if found in NOTICES else "en"


def _read(text: str) -> tuple[str, str]:
    """The fence of a code block that is open at the end, else empty; all text outside of blocks."""
    fence, outside = "", []
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark is None:
            if not fence:
                outside.append(line)
        elif not fence:
            fence = mark[1]
        elif mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
    return fence, "\n".join(outside)
