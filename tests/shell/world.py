"""A small world for the agent: a bus that delivers again what was not acknowledged, a gateway that runs each call once,
a scripted mind, and a fault that can strike before or after anything the agent does.

A crash throws away everything but the store, the bus and the gateway's ledger, and builds the agent anew.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_service.admission.callers import UNBOUNDED
from agent_service.admission.capacity import Admission, Room
from agent_service.admission.limits import SharedLimits
from agent_service.admission.quotas import Quotas
from agent_service.admission.rate_limits import Pace
from agent_service.admission.spending import Spending
from agent_service.background import Background
from agent_service.core.brief import Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve
from agent_service.kill_switch import Brake, Halting
from agent_service.metrics.wakes import IncomingMetrics
from agent_service.run.arrival import Arrival
from agent_service.run.child_results import ChildResults
from agent_service.run.evidence import Evidence
from agent_service.run.intake import Intake, NewRuns, Results
from agent_service.run.model_calls import Thinker
from agent_service.run.moments import Moment
from agent_service.run.outbox import Publisher
from agent_service.run.ports import Model
from agent_service.run.recovery import Recovery
from agent_service.run.turn import Turns
from agent_service.store.sqlite import SqliteStore
from agent_service.trust.capabilities import Capabilities
from agent_service.trust.signing import Signing
from groundwork.service.errors import TryAgain
from groundwork.service.keys import KeyRing
from groundwork.telemetry.metrics import Instruments
from schemas import keys, subjects
from schemas.catalog import UNNAMED, Catalog, ToolCommand, ToolOffer
from schemas.events import Cancel, Envelope, Signal, ToolError, ToolOutput, ToolRequest, ToolResult
from tests.kit.crashes import Crash, Mortal, Points
from tests.kit.fakes import FakeClock, MemoryArtifacts, MemoryBoard, MemoryHalts, MemoryStore
from tests.kit.runs import NOON
from tests.shell.faults import FaultyStore
from tests.shell.mind import Mind

NOWHERE, MOST_QUEUED = Path("nowhere"), 1000

APPEND = ToolOffer(
    name="append", output="trusted", route="append", commands=(ToolCommand(name="handle", tier="write"),)
)
POLICY = LimitPolicy(defaults=Limits(deadline_at=NOON))

FOR_PEOPLE = {subjects.WAITING, subjects.ESCALATED}
FOR_THE_AGENT = {subjects.START, subjects.TOOL_RESULT, subjects.CANCEL, subjects.SIGNAL}


Play = Callable[[ToolRequest], dict[str, Any]]
"""What a plugin does: the fields of its result that differ, by the request."""
Person = Callable[[dict[str, Any]], dict[str, Any] | None]
"""What somebody says to the payload of `agent.waiting` or `agent.escalated`: the fields of a signal, or nothing."""


@dataclass(slots=True)
class Delivery:
    subject: str
    body: bytes
    place: int


class FakeBus:
    """Keeps what was published, once per key, and delivers it until it is acknowledged. Fills the port Bus."""

    def __init__(self, faults: Points) -> None:
        self.published: dict[str, Delivery] = {}
        self.told: list[str] = []
        self.unacknowledged: list[Delivery] = []
        self.away = False
        self._faults = faults

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        del headers
        if self.away:
            raise TryAgain("the bus is away")
        self._faults.point(f"before publish {subject}")
        self.put(subject, body, key)
        self._faults.point(f"after publish {subject}")

    async def tell(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        del body, headers
        self._faults.point(f"before tell {subject}")
        self.told.append(key)

    def put(self, subject: str, body: bytes, key: str) -> None:
        if key not in self.published:
            delivery = Delivery(subject, body, len(self.published) + 1)
            self.published[key] = delivery
            self.unacknowledged.append(delivery)

    def events(self, subject: str) -> list[dict[str, Any]]:
        return [json.loads(d.body)["payload"] for d in self.published.values() if d.subject == subject]


class FakeGateway:
    """Runs each call once, and answers a repeated request from its ledger."""

    def __init__(self, bus: FakeBus) -> None:
        self.executed: Counter[str] = Counter()
        self.told: dict[str, Any] = {}
        """What results tell of their calls."""
        self.failing: set[tuple[int, int]] = set()
        """Attempts, by step and number, that fail and may be tried again."""
        self.losing: set[int] = set()
        """Steps whose outcome is lost: they are carried out, and nobody knows."""
        self.plays: Play = lambda _: {}
        """What an answer has besides, or instead, by the request."""
        self._bus = bus

    def handle(self, delivery: Delivery) -> None:
        request = Envelope[ToolRequest].model_validate_json(delivery.body).payload
        of_task = (request.task, request.round)
        call = keys.call(request.run_id, request.step, request.tool, request.attempt, *of_task)
        if call not in self.executed:
            self.executed[call] += 1
        error = self._error(request.step, request.attempt)
        result = ToolResult(
            run_id=request.run_id,
            step=request.step,
            tool=request.tool,
            status="error" if error else "ok",
            result=None if error else ToolOutput.model_validate({"summary": f"line {request.step}"} | self.told),
            error=error,
            completed_at=NOON,
            attempt=request.attempt,
            task=request.task,
            round=request.round,
        ).model_copy(update=self.plays(request))
        key = keys.result(request.run_id, request.step, request.attempt, *of_task)
        body = Envelope[ToolResult](type=subjects.TOOL_RESULT, payload=result, dedupe_key=key).body()
        self._bus.put(subjects.TOOL_RESULT, body, key)

    def _error(self, step: int, attempt: int) -> ToolError | None:
        if step in self.losing:
            return ToolError(error_class="in_doubt", message="the receipt is lost", retryable=False)
        failing = (step, attempt) in self.failing
        return ToolError(error_class="upstream", message="not now", retryable=True) if failing else None


class NoSchemas:
    def flaws(self, *_: object) -> tuple[str, ...]:
        return ()


class Offer:
    def __init__(self, tools: tuple[ToolOffer, ...] = (APPEND,)) -> None:
        self.away = False
        self._tools = tools

    async def catalog(self) -> Catalog:
        if self.away:
            raise TryAgain("nobody tells any tools")
        return Catalog(revision="1", tools=self._tools)

    def present(self) -> frozenset[str]:
        return frozenset((UNNAMED,))


class World:
    """All of it, with the agent inside that a crash replaces."""

    def __init__(
        self,
        *,
        reserve: Reserve | None = None,
        slots: int = 4,
        store: MemoryStore | SqliteStore | None = None,
        model: Model | None = None,
        policy: LimitPolicy = POLICY,
        fused: bool = True,
        verify: bool = False,
        tools: tuple[ToolOffer, ...] = (APPEND,),
        on_commit: Callable[[Moment], object] = lambda _: None,
        mind: type[Mind] = Mind,
        usd_per_day: float | None = None,
        usd_of_callers: dict[str, float] | None = None,
    ) -> None:
        """`model` thinks in the place of the scripted mind."""
        self.usd_per_day, self._usd_of_callers = usd_per_day, usd_of_callers or {}
        self._slots, self._policy, self._on_commit = slots, policy, on_commit
        self._fused, self._verify = fused, verify
        self.faults = Points()
        self.clock = FakeClock()
        self.store = store or MemoryStore()
        self.artifacts = MemoryArtifacts()
        self.offer = Offer(tools)
        self.bus = FakeBus(self.faults)
        self.capabilities = Capabilities(KeyRing.fresh())
        self.gateway = FakeGateway(self.bus)
        self.halts, self.board = MemoryHalts(), MemoryBoard()
        self.person: Person = lambda _: None
        self.mind = mind(self.faults, self.store, reserve=reserve)
        self._model = model or self.mind
        self.crashes = 0
        self.next_strike: int | None = None
        """At which point the next life dies too, once; None: nowhere."""
        self.interrupted = 0
        """How often a crash found a model call set aside for and not answered."""
        self.build_anew()

    def start(self, goal: str = "append twice", name: str = "a", **constraints: Any) -> None:
        """Somebody publishes `agentic.start`."""
        payload = {"goal": goal, "constraints": constraints}
        body = json.dumps({"type": subjects.START, "payload": payload, "dedupe_key": keys.start(name)}).encode()
        self.bus.put(subjects.START, body, keys.start(name))

    async def receive(self, number: int) -> None:
        """Take message `number` of the bus, and begin the run that it starts."""
        await self.intake.receive(self.arrival(number))
        for run_id in await self.store.queued(10):
            await self.intake.begin(run_id)

    async def until_quiet(self) -> None:
        """Begin and deliver everything, until nothing is left; a crash begins a new life."""
        while self.bus.unacknowledged or await self.store.queued(1):
            try:
                await self._go_on()
            except Crash:
                await self._live_on()

    async def until_ended(self) -> None:
        """As until it is quiet, with all the time that the run takes."""
        await self.until_quiet()
        while not (await self.state()).final:
            self.clock.advance(seconds=60)
            try:
                await self.fire_timers()
            except* Crash:
                await self._live_on()
            await self.until_quiet()

    async def fire_timers(self) -> None:
        """Let the time keeper find what is due, once."""
        async with asyncio.TaskGroup() as group:
            await self.recovery(Background(group)).fire_due(self.clock.now())

    async def try_again(self) -> None:
        """Let what could not be done before be done, once."""
        async with asyncio.TaskGroup() as group:
            self.recovery(Background(group)).try_again()

    async def stop_all(self) -> None:
        """Somebody stops everything."""
        async with asyncio.TaskGroup() as group:
            await self.halting(Background(group)).stop(by="ann", reason="it mails everybody")

    async def go_on(self) -> None:
        """Somebody lets everything go on."""
        async with asyncio.TaskGroup() as group:
            await self.halting(Background(group)).go_on(by="ann")

    async def let_go(self) -> None:
        """More may be spent."""
        assert isinstance(self.store, SqliteStore)
        async with asyncio.TaskGroup() as group:
            self.recovery(Background(group)).let_go(await self.store.held(), self.clock.now())

    async def cancel(self) -> None:
        """Somebody cancels the run."""
        run = await self.state()
        await self.intake.follow(await self.intake.cancel(Cancel(run_id=run.run_id), by="ann"))

    async def state(self) -> RunState:
        """That of the run that was asked for: all others are its children."""
        first, *_ = await self.family()
        return first

    async def family(self) -> list[RunState]:
        """All runs, in the order in which they were started."""
        runs = [await self.store.load(line.run_id) for line in await self.store.runs(limit=100)]
        return sorted((run.state for run in runs if run), key=lambda state: (state.brief.depth, state.run_id))

    def arrival(self, number: int) -> Arrival:
        """Message `number` of those that are not acknowledged."""
        delivery = self.bus.unacknowledged[number]
        return Arrival(subject=delivery.subject, body=delivery.body, place=str(delivery.place))

    async def _go_on(self) -> None:
        if self.bus.unacknowledged:
            return await self._deliver(self.bus.unacknowledged[0])
        (run_id,) = await self.store.queued(1)
        await self.intake.begin(run_id)
        return None

    async def _deliver(self, delivery: Delivery) -> None:
        if delivery.subject == subjects.tool_request(subjects.SERVICE_AGENT):
            """The agent's own: it has started what is asked for by itself."""
        elif delivery.subject.startswith(subjects.TOOL_REQUEST):
            self.gateway.handle(delivery)
        elif delivery.subject in FOR_PEOPLE:
            self._be_answered(json.loads(delivery.body)["payload"])
        elif delivery.subject in FOR_THE_AGENT:
            await self.intake.receive(Arrival(subject=delivery.subject, body=delivery.body, place=str(delivery.place)))
            self.faults.point("before ack")
        self.bus.unacknowledged.remove(delivery)

    async def _live_on(self) -> None:
        """After a crash, however often it strikes again while what was left is resumed."""
        while not await self._next_life():
            """Struck again."""

    def _be_answered(self, told: dict[str, Any]) -> None:
        """Whoever is to answer says something to a run that asks, or that was handed over."""
        said = self.person(told)
        if said:
            signal = Signal(run_id=told["run_id"], **said)
            key = keys.signal(signal.run_id, signal.signal_id)
            self.bus.put(subjects.SIGNAL, Envelope[Signal](type=subjects.SIGNAL, payload=signal).body(), key)

    async def _next_life(self) -> bool:
        """Whether the new process lived through the resuming of what the last one left."""
        self.crashes += 1
        self.interrupted += await self._is_set_aside()
        self.faults.strike_at(self.next_strike)
        self.next_strike = None
        self.build_anew()
        survived = True
        try:
            await self.resume()
        except* Crash:
            survived = False
        return survived

    async def resume(self) -> None:
        """Begin a life with what the store says was left undone."""
        async with asyncio.TaskGroup() as group:
            background = Background(group)
            await self.halting(background).recall()
            if isinstance(self.store, SqliteStore):
                spent = self.store.taken.spent(self.spending.today)
                self.spending.recall(self.spending.today, {caller: usd for caller, (usd, _) in spent.items()})
            await self.recovery(background).resume_all()

    async def _is_set_aside(self) -> bool:
        """Whether the store has something set aside for a call that no process makes any more."""
        if not await self.store.runs(limit=1):
            return False
        return (await self.state()).reserve is not None

    def _committed(self, moment: Moment) -> None:
        self.spending.committed(moment)
        self._on_commit(moment)

    def recovery(self, background: Background) -> Recovery:
        return Recovery(self.turns, self.faulty, self.store, self._publisher, background, self.brake, slots=4)

    def halting(self, background: Background) -> Halting:
        halts, going_on = Mortal(self.halts, self.faults, at=("keep",)), self.recovery(background).try_again
        return Halting(self.brake, halts, self.board, self.turns, self.store, self.clock, going_on)

    def build_anew(self) -> None:
        """A new process: all that was in memory is gone."""
        self.faulty: Any = FaultyStore(self.store, self.faults)
        self.brake, self.spending = Brake(), Spending(self.clock, self.usd_per_day, self._usd_of_callers.get)
        signing = Signing(KeyRing.fresh(), NOWHERE)
        self._publisher = Publisher(
            self.bus, self.clock, lambda _: True, self.capabilities, signing, lambda _: "", self.brake
        )
        pace = Pace(now=lambda: self.clock.now().timestamp())
        quotas = Quotas(self.clock, self.spending, lambda _: UNBOUNDED)
        self.thinker = Thinker(
            self._model,
            NoSchemas(),
            Evidence(self.store, self.artifacts),
            self.clock,
            self.brake,
            SharedLimits(pace, self.spending, quotas),
            slots=self._slots,
        )
        self.turns = Turns(self.faulty, self._publisher, self.thinker, self.clock, self._committed, self.brake)
        room = Room(self.store.counts, max_queued=MOST_QUEUED)
        self.intake = Intake(
            self.turns,
            self.offer,
            Results(capabilities=self.capabilities, children=ChildResults(self.faulty, self.artifacts)),
            NewRuns(policy=self._policy, fused=self._fused, verify=self._verify, trace_url=None),
            Admission(brake=self.brake, room=room, quotas=quotas),
            IncomingMetrics(Instruments()),
            self.clock,
        )
