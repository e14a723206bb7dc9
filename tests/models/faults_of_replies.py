"""Of what replies are made that cannot be used: good parts with something wrong, and other ways to write JSON."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from agent_service.core.phases import Phase
from tests.models.model_house import ACTION, FRAMING, PLAN, REFLECTION, reply

FRAME, PLANS, REFLECTS, COMPACTS, VERIFIES = Phase.FRAME, Phase.PLAN, Phase.REFLECT, Phase.COMPACT, Phase.VERIFY


class Bad(NamedTuple):
    """A reply: the phase that it answers, what it says, and a piece of everything that has to be told about it."""

    phase: Phase
    text: str
    told: tuple[str, ...]
    kind: str = ""


def of_kind(kind: str, *replies: Bad) -> list[Bad]:
    return [reply._replace(kind=kind) for reply in replies]


def framed(**changes: Any) -> dict[str, Any]:
    return {**FRAMING, **changes}


def reflected(**changes: Any) -> dict[str, Any]:
    return {**REFLECTION, **changes}


def planned(**changes: Any) -> dict[str, Any]:
    return {**PLAN, **changes}


def acting(**changes: Any) -> dict[str, Any]:
    """A plan with `changes` of its one action."""
    return planned(actions=[{**ACTION, **changes}])


def without(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


DONE: list[dict[str, Any]] = [dict(item) for item in FRAMING["definition_of_done"] if isinstance(item, dict)]
TWO_ITEMS = framed(definition_of_done=DONE[:2])
COUNT = "definition_of_done needs 3 to 7 items"
UNKNOWN_TOOL, UNKNOWN = acting(call="browse.open"), "tool 'browse' is not on offer; the tools are: search"
NO_COMMAND, UNCOMMANDED = acting(call="search"), "tool search has no command ''; it has: query"
EMPTY, REQUIRED = acting(arguments_json="{}"), '"text" is a required property'
WRONG, TYPED = acting(arguments_json='{"text": 7}'), "text: 7 is not of type"
FINISH, VERDICT = reflected(verdict="finish"), "reflection.verdict: Input should be 'continue'"


def single_quoted(text: str) -> str:
    return text.replace("'", " ").replace('\\"', " ").replace('"', "'").replace("null", "None")


def with_last_commas(text: str) -> str:
    return text.replace("}", ",}")


def unquoted(text: str) -> str:
    return text.replace('"reflection":', "reflection:").replace('"plan":', "plan:").replace('"framing":', "framing:")


def commented(text: str) -> str:
    return text.replace('{"framing"', '{ # the whole reply\n"framing"', 1)


def misplaced(text: str) -> str:
    return text.replace(', "', ' "', 1)


def broken(phase: Phase, write: Callable[[str], str], *told: str, **parts: Any) -> Bad:
    """A reply of these parts that is written otherwise than JSON is."""
    return Bad(phase, write(json.dumps(reply(**parts))), told)


def wrong(phase: Phase, *told: str, **parts: Any) -> Bad:
    """A reply of these parts, as JSON."""
    return Bad(phase, json.dumps(reply(**parts)), told)


def surrounded(before: str, after: str) -> Callable[[str], str]:
    return lambda text: before + text + after


def ended(length: int) -> Callable[[str], str]:
    return lambda text: text[:-length]


NOT_JSON = "the reply is no JSON"
