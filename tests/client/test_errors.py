"""Errors of calls that cannot be served, without an agent."""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from agentic_client import AsyncClient, Broken, Client, Invalid, NotAllowed, Unreachable
from agentic_client.errors import AgenticError, NotNow, refused
from tests.cli.test_client import EVENTS, JSON, TOO_DEEP, TOO_LONG, serving
from tests.kit.bus import server_with
from tests.kit.http_server import Call, Response, WireServer

RUN = "run_01M83VND07GNVAYQFY3XQ51T1D"


def test_a_problem_names_what_has_to_change() -> None:
    flaws = [{"field": "goal", "message": "must not be blank"}, {"field": "by", "message": "is too long"}]
    first = {"code": "invalid", "message": "goal: must not be blank", "field": "goal"}
    problem = refused(422, {"title": "Invalid", "detail": "two fields do not fit", "error": first, "errors": flaws})
    assert isinstance(problem, Invalid)
    told = {"goal": "must not be blank", "by": "is too long"}
    assert (problem.code, problem.field, problem.fields) == ("invalid", "goal", told)
    assert str(problem) == "two fields do not fit"


@pytest.mark.parametrize("url", ["http://agent.example:8700", "http://203.0.113.7", "http://localhost.example"])
def test_a_token_goes_over_plain_http_to_this_machine_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTIC_ALLOW_HTTP_NONLOOPBACK", raising=False)
    with pytest.raises(NotAllowed, match=r"plain http.*allow_http_nonloopback"):
        Client(url, token="t" * 16)
    for address, token, allowed in ((url, "t" * 16, True), (url, "", False), ("http://[::1]:8700", "t" * 16, False)):
        Client(address, token=token, allow_http_nonloopback=allowed).close()
    monkeypatch.setenv("AGENTIC_ALLOW_HTTP_NONLOOPBACK", "true")
    Client(url, token="t" * 16).close()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{}", "http://me:secret@127.0.0.1:{}", "nats://ann:secret@127.0.0.1:{},127.0.0.1:{}"]
)
async def test_an_agent_that_stays_away_is_told_after_the_patience(url: str, unused_port: int) -> None:
    async with AsyncClient(url.format(unused_port, unused_port), patience_s=0.2) as client:
        with pytest.raises(
            Unreachable, match=rf"no (agent|NATS server) answers at (http://)?127.0.0.1:{unused_port}"
        ) as away:
            await client.wake("x")
    assert "secret" not in str(away.value)


def test_a_program_that_is_interrupted_while_it_waits_for_events_hears_of_that_alone() -> None:
    def interrupted(_: Call) -> Response:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return Response(body=b": \n", content_type="text/event-stream", delivery="stalls")

    with WireServer(interrupted) as server, pytest.raises(KeyboardInterrupt), Client(server.url) as client:
        next(client.events(RUN))


def test_a_token_and_a_login_in_the_address_are_not_both_sent() -> None:
    with pytest.raises(Invalid, match="only one of them"):
        Client("http://me:secret@127.0.0.1", token="t" * 16)


NO_TEXT = "caf\udce9"
NO_PATHS = ("../plan.md", "artifacts/../../../../health", "/etc/passwd", NO_TEXT, "")
UNASKED: list[tuple[str, Callable[[Client], object]]] = [
    ("goal cannot be sent .it is not UTF-8 text", lambda client: client.wake(NO_TEXT)),
    ("text cannot be sent .it is not UTF-8 text", lambda client: client.runs(text=NO_TEXT)),
    ("run_id cannot be sent .it is not UTF-8 text", lambda client: client.ask("show_run", {"run_id": NO_TEXT})),
    ("there is no operation 'nope'", lambda client: client.ask("nope")),
    ("needs path parameter 'run_id'", lambda client: client.ask("show_run")),
    *(("no (path|id) of a", partial(Client.read, run=RUN, path=path)) for path in NO_PATHS),
    ("no (path|id) of a", lambda client: client.read("..", "plan.md")),
]


def test_what_cannot_be_asked_is_told_before_anything_is_sent(unused_port: int) -> None:
    with Client(f"http://127.0.0.1:{unused_port}", patience_s=0) as client:
        for says, ask in UNASKED:
            with pytest.raises(Invalid, match=says):
                ask(client)


HOSTILE = [
    (JSON, TOO_LONG, "sends more than 16 MiB at once"),
    (EVENTS, f"data: {TOO_LONG}", "sends more than 16 MiB at once"),
    (JSON, TOO_DEEP, "is not an agent"),
    (EVENTS, f"data: {TOO_DEEP}\n\n", "is not an agent"),
    (EVENTS, "data: {}\n\n", "the answer has no `seq`"),
]


def test_of_a_hostile_server_no_more_is_read_than_an_agent_sends() -> None:
    for headers, body, says in HOSTILE:
        with (
            serving((200, headers, body, False)) as server,
            Client(server.url) as client,
            pytest.raises(Broken, match=says),
        ):
            list(client.events(RUN)) if headers is EVENTS else client.show(RUN)


@pytest.mark.parametrize("says", ["-1", "nan", "-inf"])
def test_a_server_cannot_have_a_client_ask_without_a_pause(says: str) -> None:
    with (
        WireServer(lambda _: Response(503, b"{}", headers={"Retry-After": says})) as server,
        Client(server.url, patience_s=0.6) as client,
        pytest.raises(NotNow),
    ):
        client.show(RUN)
    assert len(server.calls) <= 5


def test_a_call_of_another_thread_ends_when_the_client_is_closed() -> None:
    with WireServer(lambda _: Response(503, b"{}")) as server, ThreadPoolExecutor() as pool:
        client = Client(server.url)
        waits = pool.submit(client.show, RUN)
        while not server.calls:
            threading.Event().wait(0.01)
        client.close()
        with pytest.raises(AgenticError, match="was closed"):
            waits.result(timeout=30)


def test_any_call_that_is_made_again_has_the_same_name() -> None:
    answers = iter([Response(503, b"{}"), Response(202, b'{"run_id": "run_1", "wake_id": "w"}')])
    with WireServer(lambda _: next(answers)) as server, Client(server.url) as client:
        client.ask("wake", body={"goal": "look"})
        first, again = (call.body for call in server.calls)
    assert first == again
    assert first is not None
    assert first["wake_id"].startswith("client-")


def test_a_token_that_can_be_none_is_refused_at_once_and_never_told() -> None:
    for token in ("secret-token\n", "two words", "geheim-tür"):
        with pytest.raises(NotAllowed, match="is there a line end in it") as refusal:
            Client(token=token)
        assert token.strip() not in str(refusal.value)


async def test_a_key_that_is_none_is_told(tmp_path: Path, unused_port: int) -> None:
    (tmp_path / "agent.nk").write_text("no seed")
    login = str(tmp_path / "agent.nk")
    async with AsyncClient(f"nats://127.0.0.1:{unused_port}", nkey_seed_file=login, patience_s=600) as client:
        with pytest.raises(NotAllowed, match=r"login .* cannot be used"):
            await client.wake("x")


async def test_a_login_that_the_bus_does_not_know_is_told_and_not_waited_for(tmp_path: Path, unused_port: int) -> None:
    login = {"authorization": {"user": "agent", "password": "right"}}
    async with (
        server_with(tmp_path, unused_port, login) as address,
        AsyncClient(f"nats://agent:wrong@{address}", patience_s=600) as client,
    ):
        with pytest.raises(NotAllowed, match="refuses the login") as refusal:
            await client.wake("x")
    assert "wrong" not in str(refusal.value)


async def test_a_request_that_the_bus_does_not_take_is_told_and_not_repeated(tmp_path: Path, unused_port: int) -> None:
    async with (
        server_with(tmp_path, unused_port, {"max_payload": 1024}) as address,
        AsyncClient(f"nats://{address}", patience_s=600) as client,
    ):
        with pytest.raises(Invalid, match=r"has \d+ bytes, and the bus takes 1024 at most"):
            await client.wake("x" * 2000)
