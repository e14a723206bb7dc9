"""A run's notes as values, each cut to a bound when it is noted. A prompt words them, the same way each time.

`size`: characters that count against the bound of a run's notes. What people said does not count. Without slots: a note
is measured as the JSON of its `vars`.
"""

from typing import Literal

from pydantic import JsonValue

from agent_service.core.phases import Reflection
from schemas.values import dataclass


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A JSON object, or its beginning. `missing`: characters that were cut off."""

    value: dict[str, JsonValue]
    missing: int = 0


@dataclass(frozen=True, kw_only=True)
class AskedFirst:
    """A sub-request whose result the tool asked for before it answered its step."""

    task: str
    what: str
    status: str


@dataclass(frozen=True, kw_only=True)
class StepNote:
    """`reflection`, `rationale` and `expected` led to the whole plan: the note of its first step has them."""

    kind: Literal["step"] = "step"
    step: int
    tool: str
    command: str
    status: Literal["ok", "error", "budget"]
    arguments: Kept
    output: Kept
    asked: tuple[AskedFirst, ...] = ()
    reflection: Reflection | None = None
    rationale: str = ""
    expected: str = ""
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class MessageNote:
    """`answers`: the question, in the run's words. `untrusted`: the words are a stranger's."""

    kind: Literal["message"] = "message"
    said: str
    missing: int = 0
    answers: str = ""
    untrusted: bool = False


@dataclass(frozen=True, kw_only=True)
class RulingNote:
    """A decision about a call with its arguments, or about a framing. `task`: the sub-request that makes the call."""

    kind: Literal["ruling"] = "ruling"
    verdict: str
    call: str = ""
    arguments: Kept | None = None
    task: str = ""
    framing: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class OldStep:
    step: int
    tool: str
    command: str
    status: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class MemoryNote:
    """Takes the place of older notes. `older`: the newest of their steps."""

    kind: Literal["memory"] = "memory"
    facts: tuple[str, ...]
    older: tuple[OldStep, ...] = ()
    size: int = 0


Note = StepNote | MessageNote | RulingNote | MemoryNote
