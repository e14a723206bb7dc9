"""What may leave as a message, and what the stream's answer means: without a server."""

import json

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from groundwork.nats.publishing import Refused, check_message, read_ack
from groundwork.service.errors import NoRoom, TryAgain


def answer(fields: object, headers: dict[str, str] | None = None) -> Msg:
    return Msg(Client(), "_INBOX.1", "", json.dumps(fields).encode(), headers)


def failure(code: int, err_code: int) -> Msg:
    return answer({"error": {"code": code, "err_code": err_code, "description": "as it is"}})


def test_a_plain_subject_may_be_published_to() -> None:
    for subject in ("agentic.tool_request.jina-reader", "a", "a" * 255, "$JS.ACK.S.c.1.2.3.4.5", "a.b~c.d=e"):
        check_message(subject, b"", {}, limit=1000)


def test_a_subject_that_the_server_would_not_take_is_refused_here() -> None:
    odd = ("a b", "a\tb", "a\r\nPUB b 0", "é", "a\x00", "a" * 256, "a\n")
    for subject in ("", ".", "a.", ".a", "a..b", "a.*", "a.>", ">", "a*", *odd):
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
