"""JSON in, validated values out; whatever is wrong with it is one ``InvalidRequest``."""

from __future__ import annotations

import difflib
import re
from typing import Generic, TypeVar

import msgspec

from forebay.kernel.errors import InvalidRequest
from forebay.wire.choices import choices, fields

T = TypeVar("T")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")


class JsonDecoder(Generic[T]):
    """Decodes JSON into one type.

    Raises ``InvalidRequest`` (400) for everything msgspec refuses, for JSON nested deeper than
    the interpreter's stack, and for lone surrogates: none of them may become a 500.
    """

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)

    def decode(self, data: bytes) -> T:
        """Return the value; ``param`` of the error is the path of the field at fault."""
        if not data or data.isspace():
            raise InvalidRequest(
                "the body is empty; send the request as JSON.", code="invalid_json"
            )
        try:
            return self._decoder.decode(data)
        except msgspec.ValidationError as error:
            raise _invalid_field(error, self._kind) from None
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InvalidRequest(
                f"the body is not valid JSON: {_sentence(str(error))}", code="invalid_json"
            ) from None
        except RecursionError:
            raise InvalidRequest(
                "the body's JSON is nested too deeply.", code="invalid_json"
            ) from None


def _invalid_field(error: msgspec.ValidationError, kind: type) -> InvalidRequest:
    text = str(error)
    place = _PLACE.search(text)
    param = place.group(1) if place and place.group(1) else None
    what = _PLACE.sub("", text)
    if unknown := _UNKNOWN.match(what):
        return _unknown_field(unknown.group(1), param or "", kind)
    what = what.replace("`", "")
    where = f"{param}: " if param else "the body: "
    if param and (words := choices(kind, param)):
        what += f"; one of {', '.join(words)}"
    return InvalidRequest(where + _sentence(what[:1].lower() + what[1:]), param=param)


def _unknown_field(name: str, place: str, kind: type) -> InvalidRequest:
    known = fields(kind, place)
    near = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}."
    param = f"{place}.{name[:100]}".lstrip(".")
    return InvalidRequest(f"there is no field {param!r}; {hint}", param=param)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."
