"""JSON object of a reply, bare or in a fence; of any other text, its flaw. Pure.

Words around an object may say that it is not meant, so nothing is extracted from them.
"""

import json
import re
from collections import Counter
from math import isfinite
from typing import Any

from pydantic import JsonValue

LONGEST_SAID = 60

_THOUGHT = re.compile(r"(?!\s*[{`]).*?</think>", re.DOTALL)
"""The opening tag is often part of the prompt."""
_FENCED = re.compile(r"```[a-z0-9]*\s*(\{.*\})\s*```", re.DOTALL | re.IGNORECASE)


def object_in(text: str) -> dict[str, Any]:
    """Raises ValueError with the flaw."""
    said = (_THOUGHT.sub("", text, count=1) if _THOUGHT.match(text) else text).strip()
    fenced = _FENCED.fullmatch(said)
    said = fenced[1] if fenced else said
    try:
        value = strictly(said)
    except json.JSONDecodeError as error:
        raise ValueError(_flaw_around(said, error)) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the reply: {flaw_of(error)}") from error
    if not isinstance(value, dict):
        raise ValueError("the reply is no JSON object")  # noqa: TRY004 # the text is wrong, not a type of ours
    return value


def strictly(text: str) -> JsonValue:
    """Raises ValueError or RecursionError for ambiguous or broken JSON. Bare line breaks in texts are accepted."""
    value: JsonValue = json.loads(
        text, strict=False, parse_constant=_number, parse_float=_number, object_pairs_hook=_object
    )
    return value


def flaw_of(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if not isinstance(error, json.JSONDecodeError):
        return "it has a number that is too long" if "int_max_str_digits" in str(error) else str(error)
    near = error.doc[max(0, error.pos - LONGEST_SAID // 2) : error.pos + LONGEST_SAID // 2]
    return f"{error.msg} at line {error.lineno} column {error.colno}, in {_shown(near)}"


def _flaw_around(said: str, error: json.JSONDecodeError) -> str:
    start = said.find("{")
    if not said:
        return "the reply holds no text"
    if start < 0:
        return f"there is no JSON object in the reply; it begins {_shown(said)}"
    if start > 0 or error.msg == "Extra data":
        stands = f"begins {_shown(said[:start].strip())}" if start else f"goes on {_shown(said[error.pos :])}"
        return f"the whole reply is one JSON object, with nothing around it; it {stands}"
    if error.msg.startswith("Unterminated string") or error.pos >= len(said) - len("fals"):
        return f"the reply breaks off after {len(said)} characters, before the JSON object ends"
    return f"the reply is no JSON: {flaw_of(error)}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= LONGEST_SAID else f"{text[:LONGEST_SAID]}…")


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:LONGEST_SAID]} is no number")
    return number


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Refuses duplicate names: a tool may count the other one."""
    named = dict(pairs)
    if len(named) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"{twice[:LONGEST_SAID]!r} is there twice")
    return named
