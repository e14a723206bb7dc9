"""The plugin agentic-run: what it asks the agent, and what it makes of the answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.plugins.asking import SHIPPED, ask

PLUGIN = SHIPPED / "agentic-run"
RUN = {"run_id": "run_1", "status": "paused", "goal": "look", "reason": "which cellar?", "asks": {"kind": "question"}}
TOKEN = "a-token-of-ductile-for-tests"  # noqa: S105 - of a server that lives for one test


class Agent(ThreadingHTTPServer):
    """Answers as the agent does. `heard`: method, path and body of each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heard: list[tuple[str, str, Any]] = []
        self.answer: tuple[int, Any] = (200, RUN)

    @property
    def config(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.server_port}", "token": TOKEN}


class _Handler(BaseHTTPRequestHandler):
    server: Agent

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.heard.append((self.command, self.path, json.loads(body) if body else None))
        status, content = self.server.answer
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    do_POST = do_GET  # noqa: N815 - same

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def serving() -> Iterator[Agent]:
    with Agent() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def agent() -> Iterator[Agent]:
    with serving() as made:
        yield made


def test_how_a_run_stands_is_said_in_words_and_as_an_event(agent: Agent) -> None:
    response = ask(PLUGIN, {"run_id": "run_1"}, command="status", config=agent.config)
    assert agent.heard == [("GET", "/v1/runs/run_1", None)]
    assert response["result"] == "run run_1 is paused and waits for a person: which cellar?"
    assert response["output"]["status"] == "paused"
    assert response["events"][0]["type"] == "agent.run.status"


@pytest.mark.parametrize(
    ("command", "said", "place", "sent"),
    [
        ("answer", {"answer": "the left one"}, "answers", {"answer": "the left one", "signal_id": "ductile:job-1"}),
        (
            "approve",
            {"arguments_hash": "abc", "step": 2},
            "approvals",
            {"decision": "approve", "arguments_hash": "abc", "step": 2, "signal_id": "ductile:job-1"},
        ),
        ("reject", {"reason": "no"}, "approvals", {"decision": "reject", "reason": "no", "signal_id": "ductile:job-1"}),
        ("cancel", {"reason": "late"}, "cancel", {"reason": "late"}),
    ],
)
@pytest.mark.parametrize("by_pipeline", [False, True])
def test_what_is_said_to_a_run_carries_an_id_that_is_the_same_at_each_attempt(
    agent: Agent, command: str, said: dict[str, Any], place: str, sent: dict[str, Any], *, by_pipeline: bool
) -> None:
    agent.answer = (202, {"run_id": "run_1", "status": "running"})
    payload = {"run_id": "run_1", **said} | ({"do": command} if by_pipeline else {})
    response = ask(PLUGIN, payload, command="handle" if by_pipeline else command, config=agent.config)
    assert agent.heard == [("POST", f"/v1/runs/run_1/{place}", sent)]
    assert response["output"] == {"run_id": "run_1", "said": command, "status": "running"}


def test_the_first_look_only_remembers(agent: Agent) -> None:
    agent.answer = (200, {"runs": [RUN]})
    response = ask(PLUGIN, {}, command="poll", config=agent.config)
    assert response["events"] == []
    assert response["state_updates"] == {"statuses": {"run_1": "paused"}}


@pytest.mark.parametrize(
    ("status", "retry", "told"),
    [(403, False, "needs the scope `read`, or `control`"), (404, False, "no such run"), (503, True, "503")],
)
def test_a_refusal_says_what_to_do(agent: Agent, status: int, retry: bool, told: str) -> None:
    agent.answer = (status, {"error": {"code": "no", "message": "no"}})
    response = ask(PLUGIN, {"run_id": "run_1"}, command="status", config=agent.config)
    assert (response["status"], response["retry"]) == ("error", retry)
    assert told in response["error"]
