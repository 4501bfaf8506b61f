"""JSON in, validated values out; whatever is wrong with it is one ``InvalidRequest``."""

from __future__ import annotations

import re
from typing import Generic, TypeVar

import msgspec

from forebay.kernel.errors import InvalidRequest
from forebay.wire.choices import choices

T = TypeVar("T")
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
    what = _PLACE.sub("", text).replace("`", "")
    where = f"{param}: " if param else "the body: "
    if param and (words := choices(kind, param)):
        what += f"; one of {', '.join(words)}"
    return InvalidRequest(where + _sentence(what[:1].lower() + what[1:]), param=param)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."
