"""Reading a tool request: what is taken, what never is, and what makes two requests the same."""

import json
from typing import Any

import pytest

from ductile_gateway.calls.call import Unacceptable, read_again, read_request
from tests.gateway.parts import RUN, TRACE, a_request, asked_for, message_of

SUBJECT, BODY, HEADERS = message_of(a_request())


def changed(**payload: Any) -> bytes:
    message = json.loads(BODY)
    return json.dumps(message | {"payload": message["payload"] | payload}).encode()


def test_a_request_has_the_key_of_its_attempt_the_route_of_its_subject_and_the_trace_of_its_header() -> None:
    asked = read_request(SUBJECT, BODY, HEADERS)
    assert (asked.key, asked.route, asked.trace.trace_id) == (f"{RUN}:1:fetch:1", "jina-reader", TRACE)


@pytest.mark.parametrize(
    "subject",
    [
        "agentic.tool_request",
        "agentic.tool_request.",
        "agentic.tool_request.a.b",
        "agentic.tool_request.A",
        "agentic.x.y",
    ],
)
def test_a_subject_that_names_no_route_is_never_taken(subject: str) -> None:
    with pytest.raises(Unacceptable, match="subject"):
        read_request(subject, BODY, HEADERS)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "body"),
        (b"\xff\xfe", "body"),
        (b"[1]", "body"),
        (b"[" * 5000, "body"),
        (b'{"type": "agentic.tool_request.jina-reader"}', "payload"),
        (changed(run_id="../other"), "run_id"),
        (changed(step=0), "step"),
        (changed(step="1"), "step"),
        (changed(attempt=True), "attempt"),
        (changed(tool="../pipeline"), "tool"),
        (changed(tool="x" * 5000), "tool"),
        (changed(tool="\uff46etch"), "tool"),
        (changed(tool_command="a?x"), "tool_command"),
        (changed(tool_payload=[1]), "tool_payload"),
        (BODY.replace(b'"http://example.org"', b"NaN"), "tool_payload"),
        (BODY.replace(b'"http://example.org"', b'"\\ud800"'), "body"),
        (changed(requested_at="yesterday"), "requested_at"),
    ],
)
def test_a_body_that_breaks_the_contract_is_never_taken(body: bytes, why: str) -> None:
    with pytest.raises(Unacceptable, match=why) as refusal:
        read_request(SUBJECT, body, HEADERS)
    assert len(str(refusal.value)) < 1500


@pytest.mark.parametrize(
    "other", [a_request("save"), a_request(payload={"url": "http://example.net"}), a_request(tool="fetcher")]
)
def test_another_tool_command_or_argument_makes_another_request(other: Any) -> None:
    assert asked_for(other).digest != asked_for().digest


def test_a_request_that_was_kept_reads_as_it_came() -> None:
    asked = asked_for()
    assert read_again(asked.route, asked.body, trace=asked.trace) == asked


@pytest.mark.attack(49)
@pytest.mark.parametrize(
    ("arguments", "why"),
    [({"text": "x" * 2**20}, "a message of"), ({str(number): 0 for number in range(10**5)}, "a message of")],
    ids=["large", "many"],
)
def test_arguments_beyond_what_a_message_may_have_are_never_taken(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(Unacceptable, match=why):
        read_request(SUBJECT, changed(tool_payload=arguments), HEADERS)


@pytest.mark.attack(49)
def test_arguments_of_five_hundred_levels_are_never_taken() -> None:
    deep = b'{"a":' * 500 + b"0" + b"}" * 500
    with pytest.raises(Unacceptable, match="body: Invalid JSON: recursion limit"):
        read_request(SUBJECT, BODY.replace(b'{"url":"http://example.org"}', deep), HEADERS)
