"""The commands' client: address resolution and faulty servers. No entry is lost or printed twice."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agent_service.cli.client import AgentClient, agent_address, reader_config
from agentic_client.calls import HERE
from groundwork.service.config_file import nearby
from groundwork.service.errors import Exit
from schemas.bounded import LARGEST_JSON
from tests.cli.invoke import agentic_here
from tests.kit.http_server import Call, Response, WireServer

EVENTS = {"Content-Type": "text/event-stream; charset=utf-8"}
TOKEN = "a-token-of-mine"  # noqa: S105 - of no server
JSON = {"Content-Type": "application/json"}


@contextmanager
def serving(*answers: tuple[int, dict[str, str], str, bool]) -> Iterator[WireServer]:
    """Returns these answers (status, headers, body, cut off?) in turn, the last one repeatedly."""
    left = list(answers)

    def respond(_: Call) -> Response:
        status, headers, body, cut_off = left.pop(0) if len(left) > 1 else left[0]
        content = body.encode() * (2 if cut_off else 1)
        return Response(status=status, body=content, headers=headers, delivery="cut" if cut_off else "whole")

    with WireServer(respond) as server:
        yield server


def events(*seqs: int, status: str = "running") -> str:
    return "".join(f"data: {json.dumps({'seq': seq, 'status': status})}\nid: {seq}\n\n" for seq in seqs)


def refusal(status: int, code: str) -> tuple[int, dict[str, str], str, bool]:
    return status, JSON, json.dumps({"error": {"code": code, "message": "because"}}), False


def test_every_refusal_has_its_exit_code_and_says_why() -> None:
    for status, code in {401: 6, 403: 6, 404: 5, 409: 6, 422: 6, 429: 75, 500: 6, 503: 75}.items():
        with serving(refusal(status, "some_code")) as server:
            called = agentic_here("show", "--json", "--url", server.url, "run_1")
        assert (called.code, called.error["code"], "because" in called.error["message"]) == (code, "some_code", True)


def test_a_token_is_sent_and_never_shown_and_over_plain_http_to_this_machine_alone() -> None:
    with serving(refusal(403, "forbidden")) as server:
        called = agentic_here("runs", "--url", server.url, AGENTIC_TOKEN=TOKEN)
    assert server.calls[0].headers["authorization"] == f"Bearer {TOKEN}"
    abroad = agentic_here("runs", "--url", "http://203.0.113.7:1", AGENTIC_TOKEN=TOKEN)
    assert (abroad.code, "AGENTIC_ALLOW_HTTP_NONLOOPBACK=true" in abroad.err) == (Exit.USAGE, True)
    assert TOKEN not in f"{called}{abroad}"
    broken = agentic_here("runs", "--token", "two\nlines")
    assert (broken.code, "two" in broken.err, broken.err.count("\n")) == (Exit.USAGE, False, 1)


TOO_LONG, TOO_DEEP = "x" * (LARGEST_JSON + 1), '{"a":' + "[" * 200_000
HTML = {"Content-Type": "text/html"}
STRANGE: list[tuple[str, tuple[int, dict[str, str], str, bool], int, str]] = [
    *(("wake x", (200, HTML, body, False), 69, "is not an agent") for body in ("<html>hello</html>", "[1]", "")),
    ("show run_1", (404, JSON, TOO_LONG, False), 69, "sends more than 16 MiB at once, which no agent does"),
    ("show run_1", (404, HTML, "<html>hello</html>", False), 69, "is not an agent"),
    ("wake x", (405, JSON, '{"detail": "Method Not Allowed"}', False), 69, "is not an agent"),
    ("runs", (301, HTML, "", False), 69, "is not an agent"),
    ("wake x", (200, JSON, "{}", False), 69, "the answer has no `run_id`"),
    ("runs", (401, HTML, "", False), 6, "give it with --token"),
]


def test_a_server_that_is_no_agent_is_told_apart_and_no_more_is_read_of_it_than_an_agent_sends() -> None:
    for command, answer, code, says in STRANGE:
        with serving(answer) as server:
            called = agentic_here(*command.split(), "--json", "--url", server.url)
        assert (called.code, says in called.error["message"]) == (code, True), (command, answer[2][:40])


def test_a_wake_whose_answer_is_lost_can_be_asked_again_safely() -> None:
    with serving(refusal(503, "try_again")) as server:
        called = agentic_here("wake", "--url", server.url, "x")
    assert called.code == 75
    assert "--wake-id cli-" in called.err


def test_a_run_that_the_token_may_start_and_not_follow_is_said_to_go_on() -> None:
    accepted = (202, JSON, '{"run_id": "run_1", "wake_id": "w"}', False)
    with serving(accepted, refusal(403, "forbidden")) as server:
        called = agentic_here("run", "--url", server.url, "x")
    assert (called.code, "run_1 goes on: because" in called.err) == (Exit.INTERRUPTED, True)


def test_a_stream_that_is_cut_off_is_gone_on_with_after_the_last_entry_seen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cut_off = (200, EVENTS, events(1, 2), True)
    ended_early = (200, EVENTS, events(3), False)
    busy = refusal(503, "try_again")
    rest = (200, EVENTS, events(4) + events(5, status="done"), False)
    under_way = (200, JSON, '{"status": "running"}', False)
    with (
        serving(cut_off, ended_early, under_way, busy, rest) as server,
        closing(AgentClient(server.url, None)) as agent,
    ):
        agent.retry_while_away()
        seen = [entry["seq"] for entry in agent.follow("follow_run", {"run_id": "run_1"})]
    assert seen == [1, 2, 3, 4, 5]
    assert [call.headers.get("last-event-id") for call in server.calls] == [None, "2", None, "3", "3"]
    told = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == 2 * ["waiting for the agent", "the agent is back"], "each absence is told once"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder and an environment that name no agent."""
    for name in ("AGENTIC_URL", "AGENT_HTTP__HOST", "AGENT_HTTP__PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SAYS = "as agent.http of agentic.yaml says"
NAMED = {
    "agent: {http: {port: 9000}}": ("http://127.0.0.1:9000", SAYS),
    "agent: {http: {host: '::', port: '${PORT:-9001}'}}": ("http://[::1]:9001", SAYS),
    "agent: {http: {host: 0.0.0.0}}": (HERE, SAYS),
    "agent: {turns: 2}": (HERE, "the default"),
}
NAMES_NONE = {
    "agent: {http: {port: 0}}": "agent.http.port is no port",
    "agent: {http: {port: abc}}": "agent.http.port is no port",
    "agent: {http: {host: 203.0.113.7}}": "agent.http.host is no address of this machine",
    "agent: {http: {host: agents.example}}": "agent.http.host is no address of this machine",
    "agent: {http: {port: 1}, http: {}}": "twice",
    "agent: []": "expected settings",
}


def test_the_configuration_here_names_the_agent_if_it_is_one_of_this_machine(folder: Path) -> None:
    found = {}
    for settings in NAMED:
        (folder / "agentic.yaml").write_text(settings)
        found[settings] = agent_address("")
    assert found == NAMED
    for settings, why in NAMES_NONE.items():
        (folder / "agentic.yaml").write_text(settings)
        refused = agentic_here("runs", cwd=folder)
        assert (refused.code, why in refused.err) == (Exit.MISCONFIGURED, True), refused


def test_what_is_said_goes_before_the_environment_and_that_before_the_file_also_one_that_leads_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "agentic.yaml").symlink_to("nowhere")
    assert (nearby(None), reader_config(None)) == (Path("agentic.yaml"),) * 2
    (folder / "agentic.yaml").unlink()
    (folder / "agentic.yaml").write_text("agent: {http: {port: 9000}}")
    monkeypatch.setenv("AGENT_HTTP__PORT", "9001")
    assert agent_address("")[0] == "http://127.0.0.1:9001"
    monkeypatch.setenv("AGENTIC_URL", "http://there:1")
    assert agent_address("http://there:1")[1] == "as AGENTIC_URL says"
    assert agent_address("http://there:2")[1] == "as --url says"
