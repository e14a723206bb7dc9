"""The plugins agentic-run and ductile-look: what they ask the agent and Ductile, and what they make of the answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ductile.fake import FakeDuctile, behaviours
from tests.ductile.under_test import called, finished
from tests.kit.http_server import WireServer
from tests.plugins.asking import SHIPPED, ask

RUN = {"run_id": "run_1", "status": "paused", "goal": "look", "reason": "which cellar?", "asks": {"kind": "question"}}
TOKEN = "a-token-of-ductile-for-tests"  # noqa: S105 - of a server that lives for one test


def asked(
    payload: dict[str, Any], command: str, content: Any = RUN, status: int = 200
) -> tuple[dict[str, Any], WireServer]:
    """The response of the plugin, and what the agent heard, which answers like that."""
    with WireServer(lambda _: (status, {}, json.dumps(content).encode())) as agent:
        response = ask(SHIPPED / "agentic-run", payload, command=command, config={"url": agent.url, "token": TOKEN})
    assert {heard.headers["authorization"] for heard in agent.calls} == {f"Bearer {TOKEN}"}
    return response, agent


def test_how_a_run_stands_is_said_in_words_and_as_an_event() -> None:
    response, agent = asked({"run_id": "run_1"}, "status")
    assert [(heard.method, heard.path, heard.raw) for heard in agent.calls] == [("GET", "/v1/runs/run_1", b"")]
    assert response["result"] == "run run_1 is paused and waits for a person: which cellar?"
    assert (response["output"]["status"], response["events"][0]["type"]) == ("paused", "agent.run.status")


SIGNAL = {"signal_id": "ductile:job-1"}
HASH = {"arguments_hash": "abc", "step": 2}


@pytest.mark.parametrize(
    ("command", "said", "place", "sent"),
    [
        ("answer", {"answer": "the left one"}, "answers", {"answer": "the left one"} | SIGNAL),
        ("approve", HASH, "approvals", {"decision": "approve"} | HASH | SIGNAL),
        ("reject", {"reason": "no"}, "approvals", {"decision": "reject", "reason": "no"} | SIGNAL),
        ("cancel", {"reason": "late"}, "cancel", {"reason": "late"}),
    ],
)
@pytest.mark.parametrize("by_pipeline", [False, True])
def test_what_is_said_to_a_run_carries_an_id_that_is_the_same_at_each_attempt(
    command: str, said: dict[str, Any], place: str, sent: dict[str, Any], *, by_pipeline: bool
) -> None:
    payload = {"run_id": "run_1", **said} | ({"do": command} if by_pipeline else {})
    heard = {"run_id": "run_1", "status": "running"}
    response, agent = asked(payload, "handle" if by_pipeline else command, heard, 202)
    told = [(heard.method, heard.path, json.loads(heard.raw)) for heard in agent.calls]
    assert told == [("POST", f"/v1/runs/run_1/{place}", sent)]
    assert response["output"] == {"run_id": "run_1", "said": command, "status": "running"}


def test_the_first_look_only_remembers() -> None:
    response, _ = asked({}, "poll", {"runs": [RUN]})
    assert (response["events"], response["state_updates"]) == ([], {"statuses": {"run_1": "paused"}})


def test_a_refusal_says_what_to_do() -> None:
    for status, told in ((403, "needs the scope `read`, or `control`"), (404, "no such run"), (503, "503")):
        response, _ = asked({"run_id": "run_1"}, "status", {"error": {"code": "no", "message": "no"}}, status)
        assert (response["status"], response["retry"], told in response["error"]) == ("error", status == 503, True)


@pytest.mark.parametrize(
    ("url", "token", "told"),
    [
        ("http://ductile.example.org", "reader", "the token would go to ductile.example.org without TLS: use https"),
        ("ftp://127.0.0.1", "reader", "url must be that of Ductile's API"),
        ("", "caller", "Ductile answered 403: the token needs the scope jobs:ro"),
        ("", "reader", "Ductile's log has no job none"),
    ],
)
def test_what_cannot_be_told_is_said_with_what_to_do(tmp_path: Path, url: str, token: str, told: str) -> None:
    with FakeDuctile() as fake:
        (tmp_path / "token").write_text(f"{fake.tokens[token]}\n")
        config = {"url": url or fake.url, "token_file": str(tmp_path / "token")}
        answer = ask(SHIPPED / "ductile-look", {"job_id": "none"}, command="job", config=config)
    assert (answer["status"], answer["retry"]) == ("error", False)
    assert answer["error"].startswith(told)
    assert fake.tokens[token] not in answer["error"]


def test_an_error_without_end_hides_neither_its_job_nor_the_others(tmp_path: Path) -> None:
    with FakeDuctile() as fake:
        fake.on("probe", "note", behaviours.fails("x" * 3_000_000, retry=False))
        ids = [called(fake, name) for name in ("look", "note")]
        for job_id in ids:
            finished(fake, job_id)
        (tmp_path / "token").write_text(fake.token)
        config = {"url": fake.url, "token_file": str(tmp_path / "token")}
        listed = ask(SHIPPED / "ductile-look", {}, command="jobs", config=config)
        told = ask(SHIPPED / "ductile-look", {"job_id": ids[1]}, command="job", config=config)
    assert all(job_id in listed["result"] for job_id in ids)
    assert "[cut: 3000000 characters]" in told["result"]
