"""Builders and fakes for tests of the gateway."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any, cast

from ductile_gateway import store
from ductile_gateway.bus.ownership import BusOwnership
from ductile_gateway.calls.admission import CallSlots, PauseGate
from ductile_gateway.calls.call import (
    AlreadyStarted,
    CallRequest,
    NeverStarted,
    Receipt,
    ToolCall,
    ToolOutcome,
    Verdict,
    read_request,
)
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.calls.policy import Offers
from ductile_gateway.calls.relay import Relay
from ductile_gateway.ports import Begin, CallObserver, ToolRunner
from ductile_gateway.store.rows import FileCarrier, Rows
from ductile_gateway.telemetry import CallTelemetry, GatewayMetrics, Spans
from groundwork.service.errors import GiveUp, NameTaken, TryAgain
from groundwork.sqlite.file import SqliteFile
from schemas import envelope as headers
from schemas import keys, subjects
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from schemas.events import Envelope, ToolRequest, ToolResult
from tests.kit.fakes import still

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
RUN = "run_01JZ8Q5T7W9X2Y4Z6A8B0C1D2E"
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
OWN_RUN = f"run_01JZ8Q5T7W9X2Y4Z6A8B0C1D{WORKER:02}"
"""Of calls that run: what one has left is found by its key on the whole machine, and pytest has several processes."""
TRACE = "0123456789abcdef0123456789abcdef"

DONE = ToolOutcome("ok", text="done")
URL = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
DOCUMENT = {"type": "object", "properties": {"document": {"type": "string", "format": "artifact"}}}
FETCH = ToolOffer(
    name="fetch",
    route="jina-reader",
    output="trusted",
    commands=(
        ToolCommand(name="handle", tier="read", input_schema=URL),
        ToolCommand(name="save", tier="write"),
        ToolCommand(name="tag", tier="write", idempotent=True),
        ToolCommand(name="read", tier="read", input_schema=DOCUMENT),
    ),
    timeout_s=60,
)
CATALOG = Catalog(revision="sha256:1", tools=(FETCH,))

ILLEGAL_NAMES = (
    *("../pipeline/x", "..", ".", "", "a?b", "a#b", "a/b", "a%2fb", "a\\b", "foo.>", "foo.*", "*", ">", "a b", "a\nb"),
    *("a\r\nHost: b", "a\0b", "A", "\uff41", "ä", "-a", "x" * 65, "x" * 5000),
)
ASKS: dict[str, Any] = {"action": "retrieve", "query": "what may be relaxed?", "reason": "unsat"}
FORM = """\
## Plugin Result
Status: continuation
Plugin: jina-reader

## Continuation Request
Action: retrieve
Query: what may be relaxed?
Reason: unsat
"""
PAGES = (
    FORM,
    "## Plugin Result\nStatus: success\nPlugin: jina-reader\nConfidence: low\n\nx = 3\n",
    "## Plugin Result\nStatus: error\nPlugin: jina-reader\n\nno such variable\n",
    FORM.replace("Query: what", "Quest: what"),
)
"""Answers in the form of the markdown: a request, a success, an error, and a request that cannot be read."""


def a_request(command: str = "handle", payload: Mapping[str, Any] | None = None, **more: Any) -> ToolRequest:
    asked: dict[str, Any] = {"run_id": RUN, "step": 1, "tool": "fetch", "attempt": 1, "requested_at": NOON}
    given = {"url": "http://example.org"} if payload is None else dict(payload)
    return ToolRequest(**asked | {"tool_command": command, "tool_payload": given} | more)


def message_of(request: ToolRequest, route: str = "jina-reader") -> tuple[str, bytes, dict[str, str]]:
    key = keys.request(request.run_id, request.step, request.attempt, request.task, request.round)
    subject = subjects.tool_request(route)
    envelope = Envelope[ToolRequest](type=subject, payload=request, dedupe_key=key)
    described = headers.event_headers(
        subject,
        dedupe_key=key,
        source="/test",
        at=datetime(2026, 11, 21, 12, tzinfo=UTC),
        run_id=request.run_id,
        trace_id=TRACE,
    )
    return subject, envelope.body(), described


def asked_for(request: ToolRequest | None = None, route: str = "jina-reader") -> CallRequest:
    return read_request(*message_of(request or a_request(), route))


def a_tool_call(plugin: str, command: str, payload: Mapping[str, Any], *, within_s: float, step: int = 1) -> ToolCall:
    """A call of a plugin, due in so many seconds of the real clock. Names and payload need not be legal."""
    named = {"run_id": OWN_RUN, "step": step}
    changed = {"tool": plugin, "tool_command": command, "tool_payload": payload} | named
    asked = replace(asked_for(), request=a_request().model_copy(update=changed), route=plugin)
    return ToolCall(asked=asked, deadline_at=datetime.now(UTC) + timedelta(seconds=within_s), payload=payload)


def result_in(body: bytes) -> ToolResult:
    payload: ToolResult = Envelope[ToolResult].model_validate_json(body).payload
    return payload


class MemoryFile:
    """The gateway's database in memory: what SqliteFile does, at once and durable for nobody."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        for script in sorted((files(store) / "sql").iterdir(), key=lambda found: found.name):
            if script.name.endswith(".sql"):
                self._connection.executescript(script.read_text())

    async def write(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        return work(self._connection)

    def look_up(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    async def read(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        return self.look_up(statement, values)


def memory_rows() -> Rows:
    return Rows(FileCarrier(cast("SqliteFile", MemoryFile())))


async def unrecorded(receipt: Receipt | None = None) -> None:
    """Lets every call begin, and stores nothing."""


class FakeRunner:
    """Answers with `verdict`, once `gate` is open. What was started is `left` to be resumed."""

    finds_anywhere = False

    def __init__(self, verdict: Verdict = DONE) -> None:
        self.verdict = verdict
        self.executed: list[ToolCall] = []
        self.resumed_with: list[Mapping[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.left: dict[str, Verdict] = {}

    async def run(self, call: ToolCall, begin: Begin) -> Verdict:
        if call.key in self.left:
            raise AlreadyStarted(call.key)
        await begin()
        self.executed.append(call)
        self.left[call.key] = self.verdict
        await self.gate.wait()
        return self.verdict

    async def resume(self, call: ToolCall) -> Verdict:
        self.resumed_with.append(call.payload)
        return self.left.get(call.key, NeverStarted())

    async def forget(self, key: str) -> None:
        self.left.pop(key, None)


class MemoryArtifacts:
    def __init__(self) -> None:
        self.kept: dict[str, tuple[bytes, str]] = {}

    async def put(self, key: str, data: bytes, content_type: str, *, over: bool = True) -> None:
        if ":" in key:
            raise GiveUp(f"not a key: {key}")
        if not over and self.kept.get(key, (data, ""))[0] != data:
            raise NameTaken(key)
        self.kept[key] = data, content_type

    async def get(self, key: str) -> bytes | None:
        return self.kept.get(key, (None, ""))[0]


class MemoryBus:
    """Keeps what was published, every time; while `down` it takes nothing."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, bytes, dict[str, str]]] = []
        self.down = False

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        if self.down:
            raise TryAgain("not connected", 0.01)
        self.messages.append((subject, key, body, headers))

    @property
    def results(self) -> list[ToolResult]:
        return [result_in(body) for _, _, body, _ in self.messages]


def offering(catalog: Catalog) -> Offers:
    offers = Offers()
    offers.replace(catalog)
    return offers


class Lease:
    async def ensure_held(self) -> None: ...


class World:
    """The surroundings of a relay; its agent knows which runs have `ended`, unless it is away. A new relay
    over the same world is a gateway that was restarted."""

    def __init__(self, runner: ToolRunner | None = None) -> None:
        self.ledger: Any = Ledger(memory_rows())
        self.runner: Any = runner or FakeRunner()
        self.artifacts: Any = MemoryArtifacts()
        self.bus: Any = MemoryBus()
        self.ended: set[str] = set()
        self.agent_away = False
        self.ownership: Any = BusOwnership(cast("Any", Lease()), memory_rows())
        self.clock = still(NOON)
        self.observer: CallObserver = CallTelemetry(GatewayMetrics(), Spans(None), urls={"": ""})

    def relay(self, catalog: Catalog = CATALOG) -> Relay:
        return Relay(
            offers=offering(catalog),
            runner=self.runner,
            slots=CallSlots({offer.name: 4 for offer in catalog.tools}, most=32, room=16),
            ledger=self.ledger,
            artifacts=self.artifacts,
            bus=self.bus,
            has_ended=self.has_ended,
            ownership=self.ownership,
            gate=PauseGate(),
            observer=self.observer,
        )

    async def has_ended(self, run_id: str) -> bool | None:
        return None if self.agent_away else run_id in self.ended


def ending(result: ToolResult) -> str:
    return result.error.error_class if result.error else result.status


def outcomes(world: World) -> list[str]:
    return [ending(result) for result in world.bus.results]
