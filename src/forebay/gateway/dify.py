"""POST /retrieval: Dify's external knowledge interface.

Conditions that are equalities joined by *and* go into the search itself; all others are
applied to more hits than were asked for, so that enough remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from forebay.gateway.directory import PREFIX, KbDirectory
from forebay.gateway.errors import Failure
from forebay.gateway.exchange import Exchange, stage_headers
from forebay.gateway.parts import GatewayParts
from forebay.kernel.documents import Hit
from forebay.kernel.stages import SearchRequest
from forebay.wire.decoding import JsonDecoder
from forebay.wire.dify import (
    Condition,
    MetadataCondition,
    Record,
    RetrievalAnswer,
    RetrievalRequest,
)
from forebay.wire.encoding import encode_json
from forebay.wire.errors import DifyError

_NO_KEY = 1001
_UNKNOWN_KEY = 1002
_CODES = {
    "invalid_authorization": _NO_KEY,
    "invalid_api_key": _UNKNOWN_KEY,
    "model_not_found": 2001,
}
_FILTER_NAMES = {"path": "source"}
_MAX_HITS = 100
_WIDEN = 5
Values = Sequence[str]


def dify_error(failed: Failure) -> bytes:
    """An error as Dify expects it; codes it does not define are the HTTP status."""
    code = _CODES.get(failed.detail.code or "", failed.status)
    if code == _UNKNOWN_KEY and failed.detail.param == "authorization":
        code = _NO_KEY
    return encode_json(DifyError(code, failed.detail.message))


class RetrievalRoute:
    """Finds passages for Dify."""

    def __init__(self, parts: GatewayParts, directory: KbDirectory) -> None:
        self._parts = parts
        self._directory = directory
        self._decoder = JsonDecoder(RetrievalRequest)

    async def __call__(self, x: Exchange) -> None:
        """Answer one request."""
        body = await x.json(self._decoder)
        kb = body.knowledge_id.removeprefix(PREFIX)
        kb = x.kb = await self._directory.kb(x.principal, kb)
        wanted = body.retrieval_setting.top_k
        condition = body.metadata_condition or MetadataCondition()
        pushed, rest = _split(condition)
        top_k = min(_MAX_HITS, wanted * _WIDEN) if rest else wanted
        request = SearchRequest(kb, body.query, top_k, pushed)
        found = await self._parts.answering.search(x.context, request)
        least = body.retrieval_setting.score_threshold or 0.0
        hits = [hit for hit in found.hits if _holds(condition, rest, hit)]
        records = [_record(hit) for hit in hits if _score(hit) >= least]
        answer = RetrievalAnswer(tuple(records[:wanted]))
        await x.reply_json(answer, headers=stage_headers(x.context))


def _score(hit: Hit) -> float:
    return min(1.0, max(0.0, hit.score))


def _record(hit: Hit) -> Record:
    chunk = hit.chunk
    metadata = {key: value for key, value in chunk.metadata.items() if not key.startswith("_")}
    metadata |= {
        "document_id": chunk.document_id,
        "chunk_id": str(chunk.chunk_id),
        "path": chunk.source,
    }
    if chunk.page is not None:
        metadata["page"] = str(chunk.page)
    return Record(chunk.text, _score(hit), chunk.title, metadata)


def _split(
    condition: MetadataCondition,
) -> tuple[dict[str, str | tuple[str, ...]], tuple[Condition, ...]]:
    """What the search can do itself, and what is left to do on its hits."""
    conditions = condition.conditions or ()
    if condition.logical_operator == "or":
        return {}, conditions
    pushed: dict[str, str | tuple[str, ...]] = {}
    rest: list[Condition] = []
    for one in conditions:
        name = (
            one.name if isinstance(one.name, str) else (one.name[0] if len(one.name) == 1 else "")
        )
        values = _values(one.value)
        if (
            name
            and _FILTER_NAMES.get(name, name) not in pushed
            and values
            and one.comparison_operator in ("is", "in")
        ):
            pushed[_FILTER_NAMES.get(name, name)] = values[0] if len(values) == 1 else tuple(values)
        else:
            rest.append(one)
    return pushed, tuple(rest)


def _holds(condition: MetadataCondition, rest: Iterable[Condition], hit: Hit) -> bool:
    verdicts = [_satisfies(one, hit) for one in rest]
    if not verdicts:
        return True
    return any(verdicts) if condition.logical_operator == "or" else all(verdicts)


def _satisfies(one: Condition, hit: Hit) -> bool:
    names = (one.name,) if isinstance(one.name, str) else one.name
    compare = _OPERATORS[one.comparison_operator]
    return any(compare(_field(hit, name), _values(one.value)) for name in names)


def _field(hit: Hit, name: str) -> Values:
    chunk = hit.chunk
    if name == "tags":
        return chunk.tags
    own = {
        "document_id": chunk.document_id,
        "source": chunk.source,
        "path": chunk.source,
        "title": chunk.title,
        "language": chunk.language,
    }
    value = own.get(name, chunk.metadata.get(name))
    return () if value is None else (value,)


def _values(value: object) -> Values:
    if value is None:
        return ()
    if isinstance(value, tuple):
        return [_text(item) for item in value]
    return [_text(value)]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _text_test(test: Callable[[str, str], bool]) -> Callable[[Values, Values], bool]:
    def compare(have: Values, want: Values) -> bool:
        return any(test(a.casefold(), b.casefold()) for a in have for b in want)

    return compare


def _order_test(test: Callable[[float, float], bool]) -> Callable[[Values, Values], bool]:
    def compare(have: Values, want: Values) -> bool:
        pairs = [(_number(a), _number(b)) for a in have for b in want]
        return any(test(a, b) for a, b in pairs if a is not None and b is not None)

    return compare


def _number(text: str) -> float | None:
    """A number, or a date as seconds since the epoch."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _same(a: str, b: str) -> bool:
    left, right = _number(a), _number(b)
    return a == b if left is None or right is None else left == right


def _not(test: Callable[[Values, Values], bool]) -> Callable[[Values, Values], bool]:
    return lambda have, want: not test(have, want)


_CONTAINS = _text_test(lambda a, b: b in a)
_IS = _text_test(lambda a, b: a == b)
_EQUAL = _text_test(_same)
_EMPTY: Callable[[Values, Values], bool] = lambda have, _want: not any(have)  # noqa: E731
_OPERATORS: dict[str, Callable[[Values, Values], bool]] = {
    "contains": _CONTAINS,
    "not contains": _not(_CONTAINS),
    "start with": _text_test(str.startswith),
    "end with": _text_test(str.endswith),
    "is": _IS,
    "is not": _not(_IS),
    "in": _IS,
    "not in": _not(_IS),
    "empty": _EMPTY,
    "null": _EMPTY,
    "not empty": _not(_EMPTY),
    "not null": _not(_EMPTY),
    "=": _EQUAL,
    "≠": _not(_EQUAL),
    "!=": _not(_EQUAL),
    ">": _order_test(lambda a, b: a > b),
    "<": _order_test(lambda a, b: a < b),
    "≥": _order_test(lambda a, b: a >= b),
    ">=": _order_test(lambda a, b: a >= b),
    "≤": _order_test(lambda a, b: a <= b),
    "<=": _order_test(lambda a, b: a <= b),
    "before": _order_test(lambda a, b: a < b),
    "after": _order_test(lambda a, b: a > b),
}
