"""Places within a JSON document (RFC 6901), and templates of text that name such places in braces. Pure."""

import json
import re
from typing import Annotated

from pydantic import JsonValue, StringConstraints

from ductile_gateway.calls.refusals import Refused

POINTER_FORM = r"^(/([^/~]|~[01])*)*$"
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_SLOT = re.compile(r"\{(/[^{}]*)\}")

Pointer = Annotated[str, StringConstraints(pattern=POINTER_FORM)]
"""Such as `/issue/title`; an empty one is the whole document."""


def find(document: JsonValue, pointer: str) -> JsonValue:
    """The value at this place. Raises Refused when there is none."""
    here = document
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        match here:
            case dict() if name in here:
                here = here[name]
            case list() if _INDEX.fullmatch(name) and int(name) < len(here):
                here = here[int(name)]
            case _:
                raise Refused(422, f"the event has nothing at {pointer}")
    return here


def fill(template: str, document: JsonValue) -> str:
    """The template with each `{/place}` replaced by what is there: text as it is, anything else as JSON."""
    return _SLOT.sub(lambda slot: _text(find(document, slot[1])), template)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
