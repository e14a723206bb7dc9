"""No name that a model or a tool wrote reaches a subject, unless it is a plain token."""

import pytest
from pydantic import TypeAdapter, ValidationError

from schemas import subjects
from schemas.fields import ToolName

HOSTILE = {
    "capital": "Fabric",
    "full width twin": "\uff46abric",
    "homoglyph": "f\u0430bric",
    "trailing space": "fabric ",
    "leading space": " fabric",
    "trailing newline": "fabric\n",
    "inner newline": "fab\r\nPUB x 0",
    "tab": "fab\tric",
    "NUL": "fabric\0",
    "empty": "",
    "wildcard tail": "foo.>",
    "wildcard": "*",
    "all": ">",
    "empty token": "a..b",
    "leading dot": ".a",
    "trailing dot": "a.",
    "two tokens": "a.b",
    "system": "$SYS.x",
    "stream deletion": "$JS.API.STREAM.DELETE.S",
    "over-long": "a" * 5000,
    "65 characters": "a" * 65,
    "leading hyphen": "-rf",
    "leading underscore": "_INBOX",
    "path upwards": "../pipeline",
    "path upwards to system": "../system",
    "path inside": "x/../../system",
    "percent encoding": "a%2f..%2fb",
    "query": "a?x",
    "fragment": "a#x",
    "backslash": "a\\b",
    "semicolon": "a;x",
    "non-ASCII digit": "a\u0663",
    "right-to-left override": "a\u202eb",
}
EVERY_HOSTILE_NAME = pytest.mark.parametrize("name", HOSTILE.values(), ids=list(HOSTILE))


@EVERY_HOSTILE_NAME
def test_a_hostile_route_never_becomes_a_subject(name: str) -> None:
    with pytest.raises(ValueError, match="not a legal name"):
        subjects.tool_request(name)


@EVERY_HOSTILE_NAME
def test_a_hostile_tool_name_is_refused_in_a_message(name: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(ToolName).validate_python(name)


def test_the_agent_itself_is_among_the_routes_that_are_never_called() -> None:
    assert {"agentic-loop", "agentic-wake", "agentic-run", "ductile-gateway"} <= subjects.OUR_OWN_ROUTES
