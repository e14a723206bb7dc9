"""AsyncClient for programs with an event loop, and Client, which has the same methods for all others."""

import asyncio
import math
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypedDict, TypeVar, Unpack, cast
from uuid import uuid4

from agentic_client import calls
from agentic_client.calls import Json, Path, Query, RunRef, path_of
from agentic_client.errors import AgenticError, Conflict, Invalid, StillRunning, Unreachable
from agentic_client.over_http import HttpTransport, refuse_plain_http
from agentic_client.views import FINAL, Accepted, Event, File, Run, RunPage, Status, Tool, read_as
from schemas.operations import BY_NAME, Operation

if TYPE_CHECKING:
    from agentic_client.over_nats import NatsTransport

PATIENCE_S, LONGEST_WAIT_S = 60.0, 30.0

P = ParamSpec("P")
T = TypeVar("T")


class ClientOptions(TypedDict, total=False):
    """`notice` gets the error that is waited out, then None at its end; `display_name` is the address in error
    messages. For the bus: a login by a file, and the prefix of the inbox that the login may read (`_INBOX`)."""

    token: str | None
    tls: ssl.SSLContext | None
    allow_http_nonloopback: bool
    patience_s: float
    notice: calls.Notice
    display_name: str
    creds_file: str | None
    nkey_seed_file: str | None
    inbox_prefix: str


class AsyncClient(AbstractAsyncContextManager["AsyncClient"]):
    """Client of an agent by its HTTP API (`http://…`) or its bus (`nats://…`); closed on leaving. `url` and `token`
    default to AGENTIC_URL and AGENTIC_TOKEN, then to the agent of this machine. While the agent is away or busy, a call
    is repeated under the same ids for `patience_s` seconds: nothing is done twice. Errors are AgenticErrors."""

    def __init__(self, url: str | None = None, **options: Unpack[ClientOptions]) -> None:
        address, token, tls = calls.address_of(url), calls.token_of(options.get("token")), options.get("tls")
        self.patience_s = options.get("patience_s", PATIENCE_S)
        self._notice = options.get("notice", lambda _: None)
        self._closed = False
        self._transport: HttpTransport | NatsTransport
        if address.startswith("http"):
            if token and not options.get("allow_http_nonloopback"):
                refuse_plain_http(address)
            self._transport = HttpTransport(address, token, tls, options.get("display_name", ""))
            return
        login = {"user_credentials": options.get("creds_file"), "nkeys_seed": options.get("nkey_seed_file")}
        login["inbox_prefix"] = options.get("inbox_prefix", "_INBOX")
        over_nats = import_module("agentic_client.over_nats")  # loaded where the bus is used
        self._transport = over_nats.NatsTransport(address, login, tls)

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        await self._transport.close()

    async def ask(
        self, operation: str | Operation, path: Path | None = None, body: Json | None = None, query: Query | None = None
    ) -> Json:
        """Calls any operation of docs/API.md by its name in the OpenAPI document; `path` has its path parameters. A
        field of the body or the query that is None is left out."""
        one, where = BY_NAME.get(operation) if isinstance(operation, str) else operation, path or {}
        if one is None:
            raise Invalid(f"there is no operation {operation!r}: the agent's OpenAPI document lists them")
        if not one.endpoint:
            self._require_http(one.name)
        sent = None if body is None else calls.as_json(body)
        if name := calls.ID_OF.get(one.name):
            sent = {name: f"client-{uuid4()}"} | (sent or {})
        asked = one, calls.as_json(where), sent, calls.as_json(query or {})
        return calls.Answer(await self._retrying(lambda: self._transport.ask(*asked), where.get("run_id")))

    def _require_http(self, operation: str) -> HttpTransport:
        if not isinstance(self._transport, HttpTransport):
            text = f"{operation} is not served on the bus: give the address of the agent's HTTP API"
            raise Invalid(text, code="only_over_http")
        return self._transport

    async def run(self, goal: str, *, timeout_s: float | None = None, **order: Unpack[calls.WakeOptions]) -> Run:
        """Starts a run and waits until it rests: see `wake` and `wait`."""
        return await self.wait(await self.wake(goal, **order), timeout_s=timeout_s)

    async def wake(self, goal: str, **order: Unpack[calls.WakeOptions]) -> Accepted:
        """Starts a run, which is durable when this returns. The same `wake_id` returns the same run again."""
        return read_as(Accepted, await self.ask("wake", body=calls.body_of(goal, order)))

    async def wait(self, run: RunRef, *, timeout_s: float | None = None, through_pauses: bool = False) -> Run:
        """Waits until the run has ended or (unless `through_pauses`) waits for a person. Raises StillRunning after
        `timeout_s` seconds; without it, waits without end."""
        until, pause = math.inf if timeout_s is None else time.monotonic() + timeout_s, calls.FIRST_PAUSE_S
        while True:
            view = await self.show(run, wait_s=max(0.0, min(until - time.monotonic(), LONGEST_WAIT_S)))
            if view.ended or (view.rests and not through_pauses):
                return view
            if time.monotonic() >= until:
                text = f"{view.run_id} is {view.status} after {timeout_s:g} s: it goes on, wait for it again"
                raise StillRunning(text, run_id=view.run_id)
            await asyncio.sleep(pause)
            pause = min(2 * pause, calls.LONGEST_PAUSE_S)

    async def show(self, run: RunRef, *, wait_s: float = 0.0) -> Run:
        """Returns the run now or, with `wait_s`, once it rests, at the latest after `wait_s` seconds. The bus answers
        at once."""
        return read_as(Run, await self.ask("show_run", path_of(run), query={"wait": wait_s} if wait_s else {}))

    async def runs(self, **filters: Unpack[calls.ListOptions]) -> RunPage:
        """Returns a page of runs that match all filters, newest first. `cursor`: `next_cursor` of the page before."""
        return read_as(RunPage, await self.ask("list_runs", query=calls.filters_of(filters)))

    async def events(self, run: RunRef, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yields the journal entries of the run after entry `after`, each once, as they come, until the run ends.
        Survives restarts of the agent."""
        async for entry in self.follow("follow_run", path_of(run), after):
            yield read_as(Event, entry)

    async def follow(self, operation: str, path: Path, after: int = 0) -> AsyncGenerator[Json, None]:
        """Yields entries as JSON; `follow_all` yields those of all runs, without end."""
        patience, stream = calls.Patience(self.patience_s, self._notice), self._require_http(operation).events
        status, number = "", "seq" if path else "position"
        while True:
            self._check_open()
            async with patience, aclosing(stream(calls.filled(BY_NAME[operation], path), after)) as events:
                async for event in events:
                    after, status = calls.Answer(event)[number], event.get("status", "")
                    patience.over()
                    yield event
                if path and (status in FINAL or (await self.ask("show_run", path))["status"] in FINAL):
                    return
                raise Unreachable("the agent ended the stream")

    async def approve(self, run: RunRef, **ruling: Unpack[calls.RulingOptions]) -> Status:
        """Approves the pending request and returns the run's status. If a person decides, pass the `arguments_hash` of
        the Asks that they read: the agent refuses any other (Conflict)."""
        if "arguments_hash" not in ruling and (asks := (await self.show(run)).asks):
            ruling = {"arguments_hash": asks.arguments_hash, "step": asks.step, **ruling}
        if ruling.get("arguments_hash") is None:
            raise Conflict("it asks for no approval: see its `asks`", code="not_heard", run_id=path_of(run)["run_id"])
        return await self._send(run, "rule_on_run", {"decision": "approve", **ruling})

    async def reject(self, run: RunRef, **ruling: Unpack[calls.RulingOptions]) -> Status:
        """Rejects the pending request for a `reason` that the run reads. Returns its status."""
        return await self._send(run, "rule_on_run", {"decision": "reject", **ruling})

    async def answer(self, run: RunRef, answer: str | None = None, **more: Unpack[calls.AnswerOptions]) -> Status:
        """Answers a question, or an escalation, which resumes the run; limits raise its budget. `outcome`: a write in
        doubt `ran`, `did_not_run`, or the run may `look`. Returns its status."""
        return await self._send(run, "answer_run", calls.body_of(None, more) | {"answer": answer})

    async def say(self, run: RunRef, message: str, *, signal_id: str | None = None, by: str | None = None) -> Status:
        """Sends the run an unasked message, which its next decision considers. Returns its status."""
        body = {"kind": "message", "message": message, "signal_id": signal_id, "by": by}
        return await self._send(run, "signal_run", body)

    async def tools(self) -> tuple[Tool, ...]:
        """Returns the tools that runs may use now."""
        return tuple(read_as(Tool, one) for one in (await self.ask("list_tools"))["tools"])

    async def cancel(self, run: RunRef, *, reason: str | None = None) -> Status:
        """Cancels the run. Repeating it changes nothing; a run that has ended otherwise is a Conflict."""
        return await self._send(run, "cancel_run", {"reason": reason or None})

    async def files(self, run: RunRef) -> tuple[File, ...]:
        """Lists the files of the run's folder: its current pages and its artifacts."""
        return tuple(read_as(File, line) for line in (await self.ask("list_files", path_of(run)))["files"])

    async def artifacts(self, run: RunRef) -> dict[str, bytes]:
        """Returns the content of each artifact that the journal names, by path."""
        return {path: await self.read(run, path) for path in (await self.show(run)).artifacts}

    async def read(self, run: RunRef, path: str) -> bytes:
        """Returns the content of a file, by a path of `files` or `Run.artifacts`."""
        content, where = self._require_http("download_file").content, path_of(run, path=path)
        return await self._retrying(lambda: content(calls.filled(BY_NAME["download_file"], where)), where["run_id"])

    async def _send(self, run: RunRef, operation: str, body: Json) -> Status:
        reply = await self.ask(operation, path_of(run), body)
        return cast("Status", reply["status"])

    def _check_open(self) -> None:
        if self._closed:
            raise AgenticError("this client is closed: make another one, or call it before its `with` ends")

    async def _retrying(self, ask: Callable[[], Awaitable[T]], run_id: str | None = None) -> T:
        patience = calls.Patience(self.patience_s, self._notice)
        while True:
            self._check_open()
            async with patience:
                try:
                    return await ask()
                except AgenticError as error:
                    error.run_id = error.run_id or run_id
                    raise


def _waits(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Client", P], T]:
    @wraps(method)
    def call(client: "Client", /, *args: P.args, **named: P.kwargs) -> T:
        return client.wait_for(lambda to: method(to, *args, **named))

    return call


class Client(AbstractContextManager["Client"]):
    """AsyncClient for programs without an event loop: it runs one in its own thread. Thread-safe; closed on leaving."""

    def __init__(self, url: str | None = None, **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncClient(url, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="agentic-client", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._loop.is_closed():
            self.wait_for(AsyncClient.close)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop):  # cancels calls of other threads at its end
            self._loop.run_forever()

    ask = _waits(AsyncClient.ask)
    run = _waits(AsyncClient.run)
    wake = _waits(AsyncClient.wake)
    wait = _waits(AsyncClient.wait)
    show = _waits(AsyncClient.show)
    runs = _waits(AsyncClient.runs)
    approve = _waits(AsyncClient.approve)
    reject = _waits(AsyncClient.reject)
    answer = _waits(AsyncClient.answer)
    say = _waits(AsyncClient.say)
    cancel = _waits(AsyncClient.cancel)
    tools = _waits(AsyncClient.tools)
    files = _waits(AsyncClient.files)
    artifacts = _waits(AsyncClient.artifacts)
    read = _waits(AsyncClient.read)

    def events(self, run: RunRef, *, after: int = 0) -> Iterator[Event]:
        return (read_as(Event, entry) for entry in self.follow("follow_run", path_of(run), after))

    def follow(self, operation: str, path: Path, after: int = 0) -> Generator[Json, None, None]:
        events, steps = self._client.follow(operation, path, after), list[asyncio.Task[Any]]()

        async def step(_: AsyncClient) -> Json | None:
            steps[:] = filter(None, [asyncio.current_task()])
            return await anext(events, None)

        async def end(_: AsyncClient) -> None:
            for last in steps:  # Ctrl-C may have left it running
                if not last.cancelling():
                    last.cancel()
                await asyncio.wait(steps)
            await events.aclose()

        try:
            while (event := self.wait_for(step)) is not None:
                yield event
        finally:
            self.wait_for(end)

    def wait_for(self, call: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        self._client._check_open()
        future = asyncio.run_coroutine_threadsafe(call(self._client), self._loop)
        try:
            return future.result()
        except CancelledError as error:
            raise AgenticError("this client was closed meanwhile") from error
        except BaseException:
            future.cancel()
            raise
