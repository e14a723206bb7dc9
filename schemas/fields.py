"""Field types of events, replies and settings, and validation errors as texts that repeat no value.

Texts hold no NUL and no lone surrogate, which SQLite and JSON readers refuse; numbers are finite; instants have a zone.
"""

import math
import operator
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import ErrorDetails

from schemas import subjects


class Wire(BaseModel):
    """Inbound: unknown fields are dropped."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


LONGEST_PLACE = 200
ID, TASK_ID = r"^[A-Za-z0-9._:-]{1,128}$", r"^[a-z0-9][a-z0-9_.-]{0,255}$"
_FORMS = {
    ID: "1 to 128 letters, digits, `.`, `_`, `:` or `-`",
    TASK_ID: "1 to 256 lower-case letters, digits, `.`, `-` or `_`, beginning with a letter or digit",
    subjects.NAME.pattern: subjects.NAME_FORM,
}
_INSTANT = "must be an RFC 3339 instant with a zone, such as 2026-11-21T12:00:00Z"
_WORDS = tuple(
    (re.compile(found), said)
    for found, said in (
        *((f"String should match pattern '{re.escape(form)}'", f"must be {words}") for form, words in _FORMS.items()),
        (r"Value error, ", ""),
        (r"Invalid JSON: recursion limit exceeded at (line \d+ column \d+)", r"is nested too deeply (\1)"),
        (r"Invalid JSON: .* at (line \d+ column \d+)", r"is not JSON (\1)"),
        (r"Field required", "is missing"),
        (r"Unable to extract tag using discriminator '(\w+)'", r"\1 is missing"),
        (r"(?s)Input tag .* found using '(\w+)' does not match any of the expected tags: ", r"\1 must be one of "),
        (r"Extra inputs are not permitted|Unexpected keyword argument", "is not known here"),
        (r"\w+ should have at least 1 item after validation, not 0", "needs one at least"),
        (r"Value should have (at \w+ \d+) items? after validation, not (\d+)", r"must have \1 characters, and has \2"),
        (r"\w+ should have (at \w+ \d+) items? after validation, not (\d+)", r"must have \1, and has \2"),
        (r"String should match pattern '(.*)'", r"must match \1"),
        (r"(String|Tuple|List) should ", "must "),
        (r"Input should be greater than or equal to (\S+)", r"must be \1 or more"),
        (r"Input should be less than or equal to (\S+)", r"must be \1 or less"),
        (r"Input should be greater than ", "must be more than "),
        (r"Input should be a valid dictionary.*", "must be an object"),
        (r"Input should be a valid (list|tuple|set|frozenset|array)", "must be a list"),
        (r"Input should be a valid string", "must be a text"),
        (r"(Input should be a valid|Unable to parse input string as an) integer.*", "must be a whole number"),
        (r"Input should be a (valid|finite) number.*", "must be a number"),
        (r"Input should be a valid boolean.*", "must be true or false"),
        (r"Input should be a valid datetime.*", _INSTANT),
        (r"Input should be ", "must be "),
    )
)
"""Plain texts for pydantic's messages, which name Python types."""


def validation_flaws(error: ValidationError, *, whole: str = "body", most: int | None = 3) -> str:
    found = sound_flaws(error)[:most]
    # cut, because a sender may choose a name of any length
    places = (".".join(map(str, flaw["loc"]))[:LONGEST_PLACE] for flaw in found)
    return "; ".join(f"{place or whole}: {plain_rule(flaw['msg'])}" for place, flaw in zip(places, found, strict=True))


def sound_flaws(error: ValidationError) -> list[ErrorDetails]:
    """Without those of lists that are too short only because pydantic counts their sound items."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    flawed = {flaw["loc"][:depth] for flaw in found for depth in range(len(flaw["loc"]))}
    return [flaw for flaw in found if flaw["type"] != "too_short" or flaw["loc"] not in flawed]


def plain_rule(message: str) -> str:
    """A pydantic message as plain text, to follow the name of a field."""
    found = ((pattern.match(message), pattern, said) for pattern, said in _WORDS)
    return next((pattern.sub(said, message, count=1) for match, pattern, said in found if match), message)


MAX_GOAL_BYTES = 32 * 1024
MOST_VALUES = 10_000
DEEPEST = 150
"""Levels of values that others send. A journal and a request nest them deeper, and readers of JSON take 200."""
_RFC3339 = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:[0-5]\d)$")


def _instant(value: object) -> datetime:
    if isinstance(value, str) and _RFC3339.fullmatch(value):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError(_INSTANT)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("must lie in the years 1 to 9999 in UTC") from None


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    text.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
    return text


def _storable_json(value: JsonValue, *, deepest: int = sys.maxsize, most: int = sys.maxsize) -> JsonValue:
    """Level by level: a call for each of a hundred thousand values would cost us more than their sender."""
    level: Sequence[JsonValue] = [value]
    levels, left = deepest, most
    while level:
        if (levels := levels - 1) < 0:
            raise ValueError(f"must be nested at most {deepest} levels deep")
        kinds = set(map(type, level))
        if float in kinds and not all(map(math.isfinite, [one for one in level if type(one) is float])):
            raise ValueError("must not contain NaN or an infinite number")
        objects = [one for one in level if type(one) is dict] if dict in kinds else []
        lists = [one for one in level if type(one) is list] if list in kinds else []
        _storable("".join([one for one in chain(level, *objects) if type(one) is str]))
        left -= sum(map(len, chain(lists, objects)))
        if left < 0:
            raise ValueError(f"must hold at most {most} values, with those inside of others")
        level = list(chain.from_iterable([*lists, *map(dict.values, objects)]))
    return value


def not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _goal(text: str) -> str:
    if len(text.encode()) > MAX_GOAL_BYTES:
        raise ValueError(f"must be at most {MAX_GOAL_BYTES} bytes of UTF-8")
    return text


Instant = Annotated[datetime, BeforeValidator(_instant)]
Text = Annotated[str, AfterValidator(_storable)]
Json = Annotated[JsonValue, AfterValidator(partial(_storable_json, deepest=DEEPEST))]
JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_storable_json)]
Context = Annotated[dict[str, JsonValue], BeforeValidator(partial(_storable_json, deepest=DEEPEST, most=MOST_VALUES))]
"""Checked before pydantic reads it, which costs more."""
Goal = Annotated[Text, AfterValidator(not_blank), AfterValidator(_goal)]
Id = Annotated[str, StringConstraints(pattern=ID)]
ToolName = Annotated[str, StringConstraints(pattern=subjects.NAME.pattern)]
TaskId = Annotated[str, StringConstraints(pattern=TASK_ID)]
"""Name of a sub-request; a task of a task has its asker's name and a dot before it."""
MAX_COUNT = 2**53 - 1
Count = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]
LONGEST_DETAIL = 2048


def _end(text: object) -> object:
    """The end of stderr has the cause."""
    return text[-LONGEST_DETAIL:] if isinstance(text, str) else text


def _if_fit(value: object, fit: ValidatorFunctionWrapHandler) -> object:
    try:
        return fit(value[:LONGEST_DETAIL] if isinstance(value, str) else value)
    except ValidationError:
        return None


Lenient = WrapValidator(_if_fit)
"""An optional detail, cut to LONGEST_DETAIL characters. An invalid one is dropped, and the message is kept."""
Stderr = Annotated[Text | None, Lenient, BeforeValidator(_end)]
By = Annotated[Text | None, Lenient, Field(exclude_if=lambda by: by is None)]
"""The sender's own claim: recorded beside the known sender, and never trusted."""


class Closed(BaseModel):
    """Unknown fields are refused: outbound messages, and what people and tools write in full."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True, defer_build=True)


Task = Annotated[TaskId | None, Field(exclude_if=operator.not_)]
Round = Annotated[Count | None, Field(exclude_if=operator.not_)]


class BudgetUse(Closed):
    """Spending and limits of the run; a limit that is not set is null."""

    steps: int
    max_steps: int
    reframes: int
    max_reframes: int
    tokens: int
    max_tokens: int | None
    cost_usd: float | None
    max_cost_usd: float | None
    lost_tokens: int = 0
    """Tokens of model calls whose reply was lost: possibly spent, so they count against the limit."""
    lost_cost_usd: float | None = 0.0
    deadline_at: Instant


class DoneItem(Closed):
    """`quotes`: one for each `evidence`; absent if there are none."""

    id: Text
    text: Text
    done: bool
    evidence: tuple[Text, ...] = ()
    quotes: Annotated[tuple[Text, ...] | None, Field(exclude_if=lambda quotes: not quotes)] = None
