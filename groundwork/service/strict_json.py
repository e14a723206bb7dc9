"""JSON from strangers, read strictly: one meaning or none.

Refused is what Python's reader would take and others would not, or would take differently: NaN and infinite numbers,
keys given twice, halves of surrogate pairs (they break UTF-8, and so every store and bus behind), numbers beyond 64
bits, encodings other than UTF-8, and nesting that could exhaust the stack (RFC 8259 lets readers set such limits).
Ours, and not pydantic's reader, which takes keys given twice, numbers of any length, and 1e999 as infinity.
"""

import json
import math
from typing import NoReturn

from pydantic import JsonValue

DEEPEST = 32
"""Levels of arrays and objects within each other."""
LARGEST = 2**63 - 1
LONGEST_NUMBER = 20
"""Characters of the longest whole number within the bounds, with its sign."""


class NotStrictJson(ValueError):
    """The text says why; nothing of what was sent is in it."""


def read(body: bytes) -> JsonValue:
    """The value that `body` holds. Raises NotStrictJson."""
    try:
        value: JsonValue = _READER.decode(body.decode())
    except UnicodeDecodeError as error:
        raise NotStrictJson("is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise NotStrictJson(f"is not JSON (line {error.lineno}, column {error.colno})") from error
    except RecursionError as error:
        raise NotStrictJson(_TOO_DEEP) from error
    _check(value, DEEPEST)
    return value


def _check(value: JsonValue, levels: int) -> None:
    match value:
        case str():
            _check_text(value)
        case list() | dict() if not levels:
            raise NotStrictJson(_TOO_DEEP)
        case list():
            for item in value:
                _check(item, levels - 1)
        case dict():
            for key, item in value.items():
                _check_text(key)
                _check(item, levels - 1)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NotStrictJson("holds half of a surrogate pair") from error


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotStrictJson("holds an object with the same key twice")
    return found


def _whole(digits: str) -> int:
    number = int(digits) if len(digits) <= LONGEST_NUMBER else LARGEST + 1
    if not -LARGEST <= number <= LARGEST:
        raise NotStrictJson("holds a whole number beyond 64 bits")
    return number


def _real(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotStrictJson("holds a number that is too large")
    return number


def _no_number(_: str) -> NoReturn:
    raise NotStrictJson("holds NaN or Infinity, which are not JSON")


_TOO_DEEP = f"is nested more than {DEEPEST} levels deep"
_READER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole, parse_float=_real, parse_constant=_no_number)
