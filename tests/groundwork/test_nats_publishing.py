"""What may leave as a message, and what the stream's answer means: without a server."""

import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from groundwork.nats.errors import Refused
from groundwork.nats.publishing import NoStream, Published, check_message, read_ack
from groundwork.service.errors import NoRoom, TryAgain


def answer(fields: object, headers: dict[str, str] | None = None) -> Msg:
    return Msg(Client(), "_INBOX.1", "", json.dumps(fields).encode(), headers)


def failure(code: int, err_code: int) -> Msg:
    return answer({"error": {"code": code, "err_code": err_code, "description": "as it is"}})


@pytest.mark.parametrize(
    "subject",
    ["agentic.start", "agentic.tool_request.jina-reader", "a", "a" * 255, "$JS.ACK.S.c.1.2.3.4.5", "a.b~c.d=e"],
)
def test_a_plain_subject_may_be_published_to(subject: str) -> None:
    check_message(subject, b"", {}, limit=1000)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a b",
        "a\tb",
        "a\r\nPUB b 0",
        "a.*",
        "a.>",
        ">",
        "a*",
        "é",
        "a\x00",
        "a" * 256,
        "a\n",
    ],
)
def test_a_subject_that_the_server_would_not_take_is_refused_here(subject: str) -> None:
    with pytest.raises(Refused, match="not a subject"):
        check_message(subject, b"", {}, limit=1000)


@pytest.mark.parametrize(("body", "fits"), [(1000 - 12 - 9, True), (1000 - 12 - 8, False)])
def test_headers_count_towards_the_largest_message(body: int, fits: bool) -> None:
    headers = {"né": "v"}  # NATS/1.0 CRLF CRLF is 12 bytes, this line 8: its name has a letter of two bytes
    limit = 1000 - 1
    if fits:
        check_message("a", b"x" * body, headers, limit=limit)
    else:
        with pytest.raises(Refused, match="store the content as an artifact"):
            check_message("a", b"x" * body, headers, limit=limit)


def test_an_acknowledgement_tells_where_the_message_is_and_whether_it_was_there_before() -> None:
    assert read_ack(answer({"stream": "S", "seq": 7}), "a") == Published("S", 7, duplicate=False)
    assert read_ack(answer({"stream": "S", "seq": 7, "duplicate": True}), "a") == Published("S", 7, duplicate=True)


def test_no_responders_means_that_no_stream_takes_it_now() -> None:
    with pytest.raises(NoStream):
        read_ack(answer({}, {"Status": "503"}), "a")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (failure(503, 10077), NoRoom),  # maximum bytes exceeded
        (failure(503, 10023), NoRoom),  # insufficient resources
        (failure(409, 10158), TryAgain),  # duplicate message id is in process
        (failure(503, 10008), TryAgain),  # temporarily unavailable
        (failure(400, 10071), Refused),  # wrong last sequence
        (failure(400, 10054), Refused),  # message size exceeds maximum
        (answer("words"), Refused),
        (answer({"unknown": 1}), Refused),
    ],
)
def test_an_error_says_whether_trying_again_can_help(message: Msg, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        read_ack(message, "a.b")
    assert caught.type is kind


def test_a_refusal_carries_the_code_of_jetstream() -> None:
    with pytest.raises(Refused) as caught:
        read_ack(failure(400, 10071), "a")
    assert caught.value.code == 10071


def test_an_answer_that_is_no_json_is_not_taken_for_an_acknowledgement() -> None:
    broken: Any = Msg(Client(), "_INBOX.1", "", b"hello", None)
    with pytest.raises(Refused):
        read_ack(broken, "a")
