"""The client for programs with an event loop. `synchronous` offers the same to all others."""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Self, TypedDict, TypeVar, Unpack, cast
from uuid import uuid4

from pydantic import ValidationError

from agentic_client.calls import (
    Answer,
    Order,
    Ruling,
    Which,
    Wishes,
    address_of,
    as_json,
    body_of,
    file_of,
    filters_of,
    run_id_of,
    token_of,
)
from agentic_client.errors import AgenticError, Broken, Conflict, Invalid, StillRunning, TryAgain, Unreachable, closed
from agentic_client.over_http import OverHttp, refuse_if_overheard
from agentic_client.transport import Json, Transport
from agentic_client.views import FINAL, Accepted, Event, File, Run, RunPage, Status, Tool

PATIENCE_S = 60.0
LONGEST_WAIT_S = 30.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0

T = TypeVar("T")
M = TypeVar("M", Accepted, Event, File, Run, RunPage, Tool)


class Options(TypedDict, total=False):
    """How an agent is reached. Those of the bus: a login by a file, and the inbox that it may hear (`_INBOX`)."""

    token: str | None
    tls: ssl.SSLContext | None
    allow_http_nonloopback: bool
    patience_s: float
    creds_file: str | None
    nkey_seed_file: str | None
    inbox_prefix: str


class AsyncClient:
    """An agent, by its HTTP API (`http://…`) or by the bus it is on (`nats://…`); closed on leaving. `url` and `token`
    default to AGENTIC_URL and AGENTIC_TOKEN, and to the agent of this machine. While the agent is away or busy, every
    call is repeated under the same ids, for `patience_s` seconds: nothing is done twice. Errors are AgenticErrors."""

    def __init__(self, url: str | None = None, **options: Unpack[Options]) -> None:
        address, token, tls = address_of(url), token_of(options.get("token")), options.get("tls")
        self._patience_s = options.get("patience_s", PATIENCE_S)
        self._closed = False
        self._transport: Transport
        if address.startswith("http"):
            if token and not options.get("allow_http_nonloopback"):
                refuse_if_overheard(address)
            self._transport = OverHttp(address, token, tls)
            return
        from agentic_client.over_nats import OverNats  # loaded where the bus is used

        login = {
            "user_credentials": options.get("creds_file"),
            "nkeys_seed": options.get("nkey_seed_file"),
            "inbox_prefix": options.get("inbox_prefix", "_INBOX"),
        }
        self._transport = OverNats(address, login, tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        await self._transport.close()

    async def run(self, goal: str, *, timeout_s: float | None = None, **order: Unpack[Order]) -> Run:
        """Pursue a goal and wait until the run rests: see `wake` and `wait`."""
        return await self.wait(await self.wake(goal, **order), timeout_s=timeout_s)

    async def wake(self, goal: str, **order: Unpack[Order]) -> Accepted:
        """Ask for a run; it is durable when this returns. The same `wake_id` names the same run again."""
        body = as_json(body_of(goal, order))
        return _read(Accepted, await self._patiently(lambda: self._transport.wake(body)))

    async def wait(self, run: Which, *, timeout_s: float | None = None, through_pauses: bool = False) -> Run:
        """Wait until the run has ended, or (unless `through_pauses`) waits for a person. Raises StillRunning after
        `timeout_s` seconds; without it there is no end to waiting."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        pause = FIRST_PAUSE_S
        while True:
            left = LONGEST_WAIT_S if until is None else max(0.0, until - time.monotonic())
            view = await self.show(run, wait_s=min(left, LONGEST_WAIT_S))
            if view.ended or (view.rests and not through_pauses):
                return view
            if until is not None and time.monotonic() >= until:
                raise StillRunning(
                    f"{view.run_id} is {view.status} after {timeout_s:g} s: it goes on, wait for it again",
                    facts={"run_id": view.run_id, "code": "still_running"},
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def show(self, run: Which, *, wait_s: float = 0.0) -> Run:
        """Where the run stands; where the agent can, as soon as it rests, and after `wait_s` seconds at the latest."""
        run_id = run_id_of(run)
        return _read(Run, await self._patiently(lambda: self._transport.run(run_id, wait_s), run_id))

    async def runs(self, *, limit: int = 50, cursor: str | None = None, **wishes: Unpack[Wishes]) -> RunPage:
        """A page of runs, newest first, that all wishes apply to. `cursor` is the `next_cursor` of the page before."""
        filters = filters_of(limit, cursor, wishes)
        return _read(RunPage, await self._patiently(lambda: self._transport.runs(filters)))

    async def events(self, run: Which, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """The entries of the run's journal as they come, each once, also through restarts of the agent, from after
        entry `after` to the end of the run."""
        run_id, status, silence = run_id_of(run), "", _Silence(self._patience_s)
        while True:
            self._check_open()
            try:
                async for entry in self._transport.entries(run_id, after):
                    event = _read(Event, entry)
                    after, status = event.seq, event.status
                    silence.over()
                    yield event
                if status in FINAL or (await self.show(run_id)).ended:
                    return
            except AgenticError as error:
                await silence.bear(error)

    async def approve(self, run: Which, **ruling: Unpack[Ruling]) -> Status:
        """Allow what the run asks for, and return its status. Where a person decides, give the `arguments_hash` of the
        Asks that they read: another one is refused (Conflict)."""
        if "arguments_hash" not in ruling:
            ruling["arguments_hash"] = await self._asked_now(run)
        if ruling["arguments_hash"] is None:
            text = "it asked for no approval when it was read: its `asks` has no arguments_hash"
            raise Invalid(text, facts={"run_id": run_id_of(run), "code": "invalid", "field": "arguments_hash"})
        return await self._say(run, "approve", {"decision": "approve", **ruling})

    async def reject(self, run: Which, **ruling: Unpack[Ruling]) -> Status:
        """Refuse what the run asks for, for a `reason` that it is told. Returns its status."""
        return await self._say(run, "approve", {"decision": "reject", **ruling})

    async def answer(self, run: Which, answer: str | None = None, **more: Unpack[Answer]) -> Status:
        """Answer its question, or its escalation, which sets it going again; limits raise its budget. `outcome`: a
        write in doubt `ran`, `did_not_run`, or the run may `look`. Returns its status."""
        return await self._say(run, "answer", body_of(None, more) | ({"answer": answer} if answer is not None else {}))

    async def say(self, run: Which, message: str, *, signal_id: str | None = None, by: str | None = None) -> Status:
        """Tell the run something that it did not ask for: it counts with its next decision. Returns its status."""
        said = {"kind": "message", "message": message, "signal_id": signal_id, "by": by}
        return await self._say(run, "signal", {name: value for name, value in said.items() if value is not None})

    async def tools(self) -> tuple[Tool, ...]:
        listed = await self._patiently(self._transport.tools)
        return tuple(_read(Tool, one) for one in listed["tools"])

    async def cancel(self, run: Which, *, reason: str | None = None) -> Status:
        """End the run now. Repeating it changes nothing; one that has ended otherwise is a Conflict."""
        run_id, body = run_id_of(run), as_json({"reason": reason} if reason else {})
        return _status(await self._patiently(lambda: self._transport.say(run_id, "cancel", body), run_id))

    async def files(self, run: Which) -> tuple[File, ...]:
        """What lies in the run's folder: its pages as its journal stands now, and its artifacts."""
        run_id = run_id_of(run)
        listed = await self._patiently(lambda: self._transport.files(run_id), run_id)
        return tuple(_read(File, line) for line in listed["files"])

    async def artifacts(self, run: Which) -> dict[str, bytes]:
        """What the run made: the content of each by its path, as soon as its journal names it."""
        return {path: await self.read(run, path) for path in (await self.show(run)).artifacts}

    async def read(self, run: Which, path: str) -> bytes:
        """The content of one of its files, by the path that `files` and `Run.artifacts` say."""
        run_id, file = run_id_of(run), file_of(path)
        return await self._patiently(lambda: self._transport.read(run_id, file), run_id)

    async def _asked_now(self, run: Which) -> str:
        view = await self.show(run)
        if view.asks is None or view.asks.arguments_hash is None:
            text = f"{view.run_id} is {view.status} and asks for no approval: see its `asks`"
            raise Conflict(text, facts={"run_id": view.run_id, "code": "not_heard"})
        return view.asks.arguments_hash

    async def _say(self, run: Which, what: str, said: Json) -> Status:
        run_id, body = run_id_of(run), as_json({"signal_id": f"client-{uuid4()}", **said})
        return _status(await self._patiently(lambda: self._transport.say(run_id, what, body), run_id))

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    async def _patiently(self, ask: Callable[[], Awaitable[T]], run_id: str | None = None) -> T:
        silence = _Silence(self._patience_s)
        while True:
            self._check_open()
            try:
                return await ask()
            except AgenticError as error:
                error.run_id = error.run_id or run_id
                await silence.bear(error)


class _Silence:
    """How long nobody has answered; `bear` waits a little, and raises what it is given where patience ends."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self.over()

    def over(self) -> None:
        self._ends_at: float | None = None
        self._pause_s = FIRST_PAUSE_S

    async def bear(self, error: AgenticError) -> None:
        """Raises what waiting does not mend."""
        if not isinstance(error, TryAgain):
            raise error
        now, silent_s = time.monotonic(), error.silent_s if isinstance(error, Unreachable) else 0.0
        self._ends_at = self._ends_at or now - silent_s + self._patience_s
        pause_s = error.retry_after_s or self._pause_s
        if now + pause_s > self._ends_at:
            raise error
        await asyncio.sleep(pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)


def _read(model: type[M], told: Json) -> M:
    try:
        return model.model_validate(told)
    except ValidationError as error:
        where = ", ".join(sorted({str(flaw["loc"][0]) for flaw in error.errors() if flaw["loc"]}))
        raise Broken(f"the agent's answer is none that this client knows ({where}): is one much older?") from error


def _status(told: Json) -> Status:
    return cast("Status", told["status"])
