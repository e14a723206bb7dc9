"""The JSON object in a reply: as it stands, or from a fence; of any other, all that is wrong with it. Pure.

What was guessed to find further flaws is never acted upon: words round an object may say that it is not meant.
"""

import json
import re
from collections import Counter
from math import isfinite
from typing import Any

from pydantic import JsonValue

from schemas.values import dataclass

LONGEST_SAID = 60

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"```[a-z0-9]*\s*(\{.*\})\s*```", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The value in a text. With a `flaw` it is only a guess."""

    value: Any
    flaw: str = ""


def found_in(text: str) -> Found:
    said = _unwrapped(text)
    if not said:
        return Found(value=None, flaw="the reply holds no text")
    try:
        return Found(value=strictly(said))
    except json.JSONDecodeError:
        return _guessed(said)
    except (ValueError, RecursionError) as error:
        return Found(value=_leniently(said), flaw=f"the reply: {flaw_of(error)}")


def strictly(text: str) -> JsonValue:
    """Raises ValueError, or RecursionError, for ambiguous or broken JSON. Bare line breaks in texts are taken."""
    value: JsonValue = json.loads(
        text, strict=False, parse_constant=_number, parse_float=_number, object_pairs_hook=_object
    )
    return value


def flaw_of(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    near = error.doc[max(0, error.pos - LONGEST_SAID // 2) : error.pos + LONGEST_SAID // 2]
    return f"{error.msg} at line {error.lineno} column {error.colno}, in {_shown(near)}"


def _unwrapped(text: str) -> str:
    said = (_THOUGHT.sub("", text, count=1) if _THOUGHT.match(text) else text).strip()
    fenced = _FENCED.fullmatch(said)
    return fenced[1] if fenced else said


def _guessed(said: str) -> Found:
    start = said.find("{")
    if start < 0:
        return Found(value=None, flaw=f"there is no JSON object in the reply; it begins {_shown(said)}")
    before, object_on = said[:start].strip(), said[start:]
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(object_on)
    except json.JSONDecodeError as error:
        return _broken(object_on, error, before)
    except (ValueError, RecursionError) as error:
        return Found(value=None, flaw=f"the reply: {flaw_of(error)}")
    return Found(value=value, flaw="; ".join(_around(before, object_on[end:].strip())))


def _around(before: str, after: str) -> list[str]:
    flaws = [f"before the JSON object stands {_shown(before)}"] if before else []
    if after.startswith("{"):
        flaws.append("there is more than one JSON object in the reply")
    elif after:
        flaws.append(f"after the JSON object stands {_shown(after)}")
    return [*flaws, "the whole reply is one JSON object, with nothing around it"]


def _broken(said: str, error: json.JSONDecodeError, before: str) -> Found:
    beside = [f"before the JSON object stands {_shown(before)}"] if before else []
    if error.msg.startswith("Unterminated string") or error.pos >= len(said) - len("fals"):
        flaw = f"the reply breaks off after {len(said)} characters, before the JSON object ends"
        return Found(value=None, flaw="; ".join((*beside, flaw)))
    return Found(value=None, flaw="; ".join((*beside, f"the reply is no JSON: {flaw_of(error)}")))


def _leniently(said: str) -> Any:
    try:
        return json.loads(said, strict=False)
    except (ValueError, RecursionError):
        return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= LONGEST_SAID else f"{text[:LONGEST_SAID]}…")


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:LONGEST_SAID]} is no number")
    return number


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Refuses a name that is there twice: a tool may count the other one."""
    named = dict(pairs)
    if len(named) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"{twice[:LONGEST_SAID]!r} is there twice")
    return named
