"""Stores under test: of one gateway, of several over a log in memory, and of several on a bus."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

from agent_service.bus.topology import topology
from ductile_gateway.calls.call import Call, ProducedArtifact, Receipt, ToolCall, ToolOutcome
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.calls.results import answer_to
from ductile_gateway.store.opening import kept_copy, open_alone, open_shared
from ductile_gateway.store.rows import Rows
from ductile_gateway.trust import Pins
from ductile_gateway.webhooks.notifications import Notification
from ductile_gateway.webhooks.outbound import NotificationOutbox
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import set_up
from schemas.signing import AgentKey
from schemas.values import replace
from tests.gateway.parts import NOON, RUN, a_request, asked_for
from tests.kit.memory_log import MemoryLog, Wire

SECOND = timedelta(seconds=1)
RUN_BYTES = 100
NAMES = ("a.md", "a-02.md", "a-x.md")
FIRST = AgentKey(id="k1", public="A" * 43)


class Stores:
    def __init__(self, rows: Rows, *, run_bytes: int = 1 << 30) -> None:
        self.rows = rows
        self.ledger, self.outbox, self.pins = Ledger(rows, run_bytes=run_bytes), NotificationOutbox(rows), Pins(rows)


class Crowd:
    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog()
        self.wires: dict[str, Wire] = {}
        self._folder = folder

    @asynccontextmanager
    async def gateway(self, name: str) -> AsyncIterator[Stores]:
        (folder := self._folder / name).mkdir(exist_ok=True)
        wire = self.wires[name] = Wire(self.log)
        async with kept_copy(wire, folder, me=name) as rows:
            yield Stores(rows)


Opener = Callable[[], AbstractAsyncContextManager[Stores]]
"""Opens the same stores each time it is called; they are closed in between."""


def embedded(folder: Path) -> Opener:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Stores]:
        async with open_alone(folder) as rows:
            yield Stores(rows, run_bytes=RUN_BYTES)

    return opened


@asynccontextmanager
async def joined(folder: Path, link: NatsLink, name: str, *, run_bytes: int = 1 << 30) -> AsyncIterator[Stores]:
    """A gateway of this name, with its copy in a folder of its own."""
    (own := folder / name).mkdir(exist_ok=True)
    async with open_shared(own, link, name) as rows:
        yield Stores(rows, run_bytes=run_bytes)


async def ledger_stream(link: NatsLink) -> None:
    await set_up(link, topology(replicas=1, max_gib=1, shared=True))


def an_open_call(step: int = 1, *, may_repeat: bool = False) -> ToolCall:
    asked = asked_for(a_request("save", {"é": [1.5, None, {"a": "b"}]}, step=step))
    payload, due = asked.request.tool_payload, NOON + 60 * SECOND
    return ToolCall(asked=asked, deadline_at=due, payload=payload, may_repeat=may_repeat)


def an_answer(step: int = 1, *, seconds: int = 0, text: str = "done") -> Call:
    return answer_to(an_open_call(step).asked, ToolOutcome("ok", text=text), at=NOON + seconds * SECOND)


async def row_of(ledger: Ledger, key: str) -> Call:
    call = await ledger.find(key)
    assert call
    return call


async def begun(ledger: Ledger, key: str) -> ToolCall:
    call = await row_of(ledger, key)
    assert call.is_open
    return call.begun_call()


async def receipt_of(ledger: Ledger, key: str) -> Receipt | None:
    call = await ledger.find(key)
    return call.begun if call else None


async def told(ledger: Ledger, key: str) -> bytes | None:
    call = await ledger.find(key)
    return call.body if call else None


async def named(ledger: Ledger, run_id: str, key: str, *candidates: tuple[str, ...]) -> tuple[str, ...]:
    return await ledger.name_artifacts(
        run_id, key, [(an_artifact(key[-1:].encode()), one) for one in candidates], at=NOON
    )


def an_artifact(content: bytes) -> ProducedArtifact:
    return ProducedArtifact("a.md", "text/markdown", content)


def a_delivery(key: str = "completed", *, target: str = "subscription:a", run_id: str = RUN) -> Notification:
    return Notification(
        target=target,
        lane=target,
        key=f"{run_id}:{key}",
        run_id=run_id,
        type="agent.completed",
        url="https://a.example/secret",
        body=b'{"type": "agent.completed"}',
        accepted_at=NOON,
        at=NOON,
    )


async def owed(stores: Stores, lane: str, at: datetime, limit: int = 10) -> list[Notification]:
    """Deliveries to be tried, in the order in which they were added."""
    found = await stores.outbox.due(lane, at, limit)
    return [replace(one, at=one.accepted_at, by="", tries=0, why="") for one in found]
