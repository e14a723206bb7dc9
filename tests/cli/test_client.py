"""The client against servers that answer badly: each answer has its exit code, and no entry is lost or told twice."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent_service.cli.client import AgentClient
from agent_service.cli.errors import Exit
from schemas.bounded import LARGEST_JSON
from tests.cli.calling import agentic_here

EVENTS = {"Content-Type": "text/event-stream; charset=utf-8"}
TOKEN = "a-token-of-mine"  # noqa: S105 - of no server
JSON = {"Content-Type": "application/json"}


@dataclass
class Server:
    """Gives these answers (status, headers, body, cut off?) in turn, the last one for ever; keeps what it was sent."""

    answers: list[tuple[int, dict[str, str], str, bool]]
    url: str = ""
    sent: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serving(*answers: tuple[int, dict[str, str], str, bool]) -> Iterator[Server]:
    server = Server(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.sent.append({name.lower(): value for name, value in self.headers.items()})
            status, headers, body, cut_off = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body.encode()) + cut_off))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        http.shutdown()


def events(*seqs: int, status: str = "running") -> str:
    return "".join(f"data: {json.dumps({'seq': seq, 'status': status})}\nid: {seq}\n\n" for seq in seqs)


def refusal(status: int, code: str) -> tuple[int, dict[str, str], str, bool]:
    return status, JSON, json.dumps({"error": {"code": code, "message": "because"}}), False


@pytest.mark.parametrize(
    ("status", "code"), [(401, 6), (403, 6), (404, 5), (409, 6), (422, 6), (429, 75), (500, 6), (503, 75)]
)
def test_every_refusal_has_its_exit_code_and_says_why(status: int, code: int) -> None:
    with serving(refusal(status, "some_code")) as server:
        called = agentic_here("show", "--json", "--url", server.url, "run_1")
    assert (called.code, called.error["code"]) == (code, "some_code")
    assert "because" in called.error["message"]


def test_a_token_goes_over_plain_http_to_this_machine_alone() -> None:
    there = ("runs", "--url", "http://203.0.113.7:1")
    called = agentic_here(*there, AGENTIC_TOKEN=TOKEN)
    assert (called.code, TOKEN in called.err) == (Exit.USAGE, False)
    assert "AGENTIC_ALLOW_HTTP_NONLOOPBACK=true" in called.err


def test_the_token_is_sent_and_never_shown() -> None:
    with serving(refusal(403, "forbidden")) as server:
        called = agentic_here("runs", "--url", server.url, AGENTIC_TOKEN=TOKEN)
    assert server.sent[0]["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in called.out + called.err


@pytest.mark.parametrize("command", [("show", "run_1"), ("runs",), ("wake", "x")])
@pytest.mark.parametrize("body", ["<html>hello</html>", "[1]", ""])
def test_a_server_that_is_no_agent_is_told_apart(command: tuple[str, ...], body: str) -> None:
    with serving((200, {"Content-Type": "text/html"}, body, False)) as server:
        called = agentic_here(*command, "--json", "--url", server.url)
    assert called.code == 69
    assert "is no agent" in called.error["message"]


TOO_LONG, TOO_DEEP = "x" * (LARGEST_JSON + 1), '{"a":' + "[" * 200_000


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        ((200, JSON, TOO_LONG, False), 1, "sends more than 16 MiB at once, which no agent does"),
        ((404, JSON, TOO_LONG, False), 1, "sends more than 16 MiB at once, which no agent does"),
        ((200, JSON, TOO_DEEP, False), 69, "is no agent"),
    ],
    ids=["long", "long refusal", "deep"],
)
def test_of_a_hostile_server_no_more_is_read_than_an_agent_sends(
    answer: tuple[int, dict[str, str], str, bool], code: int, says: str
) -> None:
    with serving(answer) as server:
        called = agentic_here("show", "--json", "--url", server.url, "run_1")
    assert (called.code, says in called.error["message"]) == (code, True)


def test_a_wake_whose_answer_is_lost_can_be_asked_again_safely() -> None:
    with serving(refusal(503, "try_again")) as server:
        called = agentic_here("wake", "--url", server.url, "x")
    assert called.code == 75
    assert "--wake-id cli-" in called.err


def test_a_stream_that_is_cut_off_is_gone_on_with_after_the_last_entry_seen() -> None:
    cut_off = (200, EVENTS, events(1, 2), True)
    ended_early = (200, EVENTS, events(3), False)
    busy = refusal(503, "try_again")
    rest = (200, EVENTS, events(4) + events(5, status="done"), False)
    absences: list[bool] = []
    with serving(cut_off, ended_early, busy, rest) as server, AgentClient(server.url, None) as agent:
        seen = [entry["seq"] for entry in agent.follow("run_1", away=lambda why: absences.append(bool(why)))]
    assert seen == [1, 2, 3, 4, 5]
    assert [sent.get("last-event-id") for sent in server.sent] == [None, "2", "3", "3"]
    assert absences == [True, False, True, True, False]
