"""A small world for the agent: a bus that delivers again what was not acknowledged, a gateway that runs each call once,
and a mind that does as a test says.

A crash strikes where a test says. It throws away everything but the store, the bus and the gateway's ledger, and builds
the agent anew. Deaths at every point of both services are `tests/sim`'s.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agent_service.admission.callers import UNBOUNDED
from agent_service.admission.capacity import Admission, Room
from agent_service.admission.limits import SharedLimits
from agent_service.admission.quotas import Quotas
from agent_service.admission.rate_limits import Pace
from agent_service.admission.spending import Spending
from agent_service.background import Background
from agent_service.core.brief import Limits
from agent_service.core.events import ModelUsage
from agent_service.core.limits import LimitPolicy
from agent_service.core.phases import Action, Framing, Met, Phase, Plan, Reflection, Verdict
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve
from agent_service.kill_switch import Brake, Halting
from agent_service.metrics.wakes import IncomingMetrics
from agent_service.run.arrival import Arrival
from agent_service.run.child_results import ChildResults
from agent_service.run.evidence import Evidence
from agent_service.run.intake import Intake, NewRuns, Results
from agent_service.run.journal import Commit
from agent_service.run.model_calls import Thinker
from agent_service.run.moments import Moment
from agent_service.run.outbox import Publisher
from agent_service.run.ports import Answer, Estimate, Model, ModelCall, Question, Wake
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
from schemas.events import Envelope, ToolOutput, ToolRequest, ToolResult
from tests.kit.crashes import Crash, Mortal, Points
from tests.kit.fakes import FakeClock, MemoryArtifacts, MemoryBoard, MemoryHalts, MemoryStore
from tests.kit.runs import NOON

T = TypeVar("T")
RESERVE = Reserve(tokens=700, cost_usd=0.25)
USAGE = ModelUsage(input_tokens=10, output_tokens=5, cost_usd=0.001)
"""Of each model call."""
FRAMED = Framing(goal_statement="Append.", definition_of_done=("one", "two", "three"))
APPEND = ToolOffer(
    name="append", output="trusted", route="append", commands=(ToolCommand(name="handle", tier="write"),)
)
POLICY = LimitPolicy(defaults=Limits(deadline_at=NOON))
FOR_THE_AGENT = {subjects.START, subjects.TOOL_RESULT, subjects.CANCEL, subjects.SIGNAL}
REQUEST = subjects.tool_request("append")

Chooses = Callable[[RunState], Plan | None]
"""What comes next, by where the run stands; None once it is done."""
Plays = Callable[[ToolRequest], dict[str, Any]]
"""What a plugin does: the fields of its result that differ, by the request."""


def act(tool: str = "append", command: str = "handle", **arguments: Any) -> Plan:
    return Plan(action=Action(tool=tool, command=command, arguments=arguments or {"text": "hello"}))


def append_twice(state: RunState) -> Plan | None:
    return act(n=state.step + 1) if len(state.completed) < 2 else None


class Mind:
    """Frames, and does what `chooses` says. Counts its calls, by run and number. Fills the port Model."""

    def __init__(self, reserve: Reserve | None = None, *, chooses: Chooses = append_twice) -> None:
        """`reserve`: what a call may spend at most; None for a mind that costs nothing."""
        self.reserve, self.chooses = reserve, chooses
        self.faults = Points()
        self.calls: Counter[tuple[str, int]] = Counter()
        self.questions: list[Question] = []
        self.outage: Exception | None = None
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def prepare(self, question: Question) -> ModelCall:
        said = Estimate(model="mind", reserve=self.reserve, prompt_hash="p", schema_hash="s") if self.reserve else None
        return ModelCall(estimate=said, make=partial(self._decide, question))

    async def _decide(self, question: Question) -> Answer:
        self.calls[question.state.run_id, question.call] += 1
        self.questions.append(question)
        self.asked.set()
        await self.may_answer.wait()
        self.faults.point(f"during {question.phase}")
        if self.outage:
            raise self.outage
        return self.answer(question.state, question.phase)

    def answer(self, state: RunState, phase: Phase) -> Answer:
        if phase is Phase.FRAME:
            return Answer(decision=FRAMED, usage=USAGE, model="mind")
        plan = self.chooses(state)
        if phase is Phase.PLAN and plan:
            return Answer(decision=plan, usage=USAGE, model="mind")
        met = () if plan else tuple(Met(item=item.id, evidence=f"step:{state.step}") for item in state.done_items)
        verdict = Verdict.CONTINUE if plan else Verdict.DONE
        return Answer(
            decision=Reflection(verdict=verdict, summary="seen", met=met), plan=plan, usage=USAGE, model="mind"
        )


@dataclass(slots=True)
class Delivery:
    subject: str
    body: bytes
    place: int


class FakeBus:
    """Keeps what was published, once per key, and delivers it until it is acknowledged. Fills the port Bus."""

    def __init__(self, faults: Points) -> None:
        self.published: dict[str, Delivery] = {}
        self.unacknowledged: list[Delivery] = []
        self._faults = faults

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        del headers
        self._faults.point(f"before publish {subject}")
        self.put(subject, body, key)
        self._faults.point(f"after publish {subject}")

    async def tell(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        """Kept nowhere."""

    def put(self, subject: str, body: bytes, key: str) -> None:
        if key not in self.published:
            delivery = self.published[key] = Delivery(subject, body, len(self.published) + 1)
            self.unacknowledged.append(delivery)

    def events(self, subject: str) -> list[dict[str, Any]]:
        return [json.loads(d.body)["payload"] for d in self.published.values() if d.subject == subject]


class FakeGateway:
    """Runs each call once, and answers a repeated request from its ledger."""

    def __init__(self, bus: FakeBus, plays: Plays) -> None:
        self.executed: Counter[str] = Counter()
        self._bus, self._plays = bus, plays

    def handle(self, delivery: Delivery) -> None:
        request = Envelope[ToolRequest].model_validate_json(delivery.body).payload
        named = request.model_dump(include={"run_id", "step", "tool", "attempt", "task", "round"})
        of_call = (request.attempt, request.task, request.round)
        self.executed[keys.call(request.run_id, request.step, request.tool, *of_call)] |= 1
        output = ToolOutput.model_validate({"summary": f"line {request.step}"})
        result = ToolResult(**named, status="ok", result=output, completed_at=NOON)
        key = keys.result(request.run_id, request.step, *of_call)
        told = result.model_copy(update=self._plays(request))
        self._bus.put(*message(subjects.TOOL_RESULT, Envelope[ToolResult], told, key))


def message(subject: str, envelope: type[Envelope[Any]], payload: Any, key: str) -> tuple[str, bytes, str]:
    """As a bus is told it."""
    return subject, envelope(type=subject, payload=payload, dedupe_key=key).body(), key


class FaultyStore:
    """A store whose process may die before a commit, or right after it. Others have their turn while it works."""

    def __init__(self, store: MemoryStore | SqliteStore, faults: Points) -> None:
        self.refusals = 0
        """How many commits of replies are refused for now, as by a full disk."""
        self.breaks_over = ""
        """A kind of event over which the program breaks."""
        self._store, self._faults = store, faults

    async def accept(self, wake: Wake, commit: Commit) -> str:
        return await self._around("accept", partial(self._store.accept, wake, commit))

    async def commit(self, commit: Commit) -> None:
        if self.refusals and commit.entry.kind == "ModelReplied":
            self.refusals -= 1
            raise TryAgain("the disk is full", delay_s=0)
        if commit.entry.kind == self.breaks_over:
            raise ZeroDivisionError(commit.entry.kind)
        await self._around(f"commit of {commit.entry.kind}", partial(self._store.commit, commit))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _around(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        self._faults.point(f"before {name}")
        await asyncio.sleep(0)
        done = await work()
        self._faults.point(f"after {name}")
        return done


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
        mind: Mind | None = None,
        *,
        beside: "World | None" = None,
        model: Model | None = None,
        store: MemoryStore | SqliteStore | None = None,
        policy: LimitPolicy = POLICY,
        tools: tuple[ToolOffer, ...] = (APPEND,),
        plays: Plays = lambda _: {},
        slots: int = 4,
        fused: bool = True,
        on_commit: Callable[[Moment], object] = lambda _: None,
        usd_per_day: float | None = None,
        usd_of_callers: dict[str, float] | None = None,
    ) -> None:
        """`model` thinks in the place of the mind. `beside`: an agent whose store, bus, gateway and time it shares."""
        self.usd_per_day, self._usd_of_callers = usd_per_day, usd_of_callers or {}
        self._slots, self._on_commit = slots, on_commit
        self._new_runs = NewRuns(policy=policy, fused=fused, verify=False, trace_url=None)
        self.faults = Points()
        self.mind = mind or Mind()
        self.mind.faults = self.faults
        self._model = model or self.mind
        self.store: MemoryStore | SqliteStore = store or MemoryStore()
        self.clock, self.bus, self.capabilities = FakeClock(), FakeBus(self.faults), Capabilities(KeyRing.fresh())
        self.gateway = FakeGateway(self.bus, plays)
        self.artifacts, self.offer = MemoryArtifacts(), Offer(tools)
        self.halts, self.board = MemoryHalts(), MemoryBoard()
        self.crashes = 0
        if beside:
            self.store, self.clock, self.bus = beside.store, beside.clock, beside.bus
            self.gateway, self.capabilities = beside.gateway, beside.capabilities
        self.build_anew()

    # what is said to it

    def start(self, goal: str = "append twice", name: str = "a", **constraints: Any) -> None:
        """Somebody publishes `agentic.start`."""
        payload = {"goal": goal, "constraints": constraints}
        self.say(subjects.START, payload, keys.start(name))

    def say(self, subject: str, payload: dict[str, Any], key: str) -> None:
        self.bus.put(subject, json.dumps({"type": subject, "payload": payload, "dedupe_key": key}).encode(), key)

    async def stop_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            await self.halting(Background(group)).stop(by="ann", reason="it mails everybody")

    async def go_on(self) -> None:
        async with asyncio.TaskGroup() as group:
            await self.halting(Background(group)).go_on(by="ann")

    # what it does

    async def receive(self, number: int = 0) -> None:
        """Take message `number` of those that are not acknowledged, and begin the run that it starts."""
        await self.intake.receive(self.arrival(number))
        for run_id in await self.store.queued(10):
            await self.intake.begin(run_id)

    async def take(self, subject: str) -> None:
        """The oldest message of `subject` that is not acknowledged, and what it begins; then it is acknowledged."""
        delivery = next(each for each in self.bus.unacknowledged if each.subject == subject)
        await self.receive(self.bus.unacknowledged.index(delivery))
        self.bus.unacknowledged.remove(delivery)

    async def until_quiet(self) -> None:
        """Begin and deliver everything, until nothing is left; a crash begins a new life."""
        while self.bus.unacknowledged or await self.store.queued(1):
            try:
                await self._go_on()
            except Crash:
                while not await self._next_life():
                    """Struck again."""

    async def fire_timers(self) -> None:
        """Let the time keeper find what is due, once."""
        async with asyncio.TaskGroup() as group:
            await self.recovery(Background(group)).fire_due(self.clock.now())

    async def try_again(self) -> None:
        """Let what could not be done before be done, once."""
        async with asyncio.TaskGroup() as group:
            self.recovery(Background(group)).try_again()

    async def let_go(self) -> None:
        """What waits for money looks whether there is some."""
        assert isinstance(self.store, SqliteStore)
        async with asyncio.TaskGroup() as group:
            self.recovery(Background(group)).let_go(await self.store.held(), self.clock.now())

    async def resume(self) -> None:
        """Begin a life with what the store says was left undone."""
        async with asyncio.TaskGroup() as group:
            background = Background(group)
            await self.halting(background).recall()
            if isinstance(self.store, SqliteStore):
                spent = self.store.taken.spent(self.spending.today)
                self.spending.recall(self.spending.today, {caller: usd for caller, (usd, _) in spent.items()})
            await self.recovery(background).resume_all()

    # what came of it

    async def state(self) -> RunState:
        """That of the run that was asked for: all others are its children."""
        first, *_ = await self.family()
        return first

    async def family(self) -> list[RunState]:
        """All runs, in the order in which they were started."""
        runs = [await self.store.load(line.run_id) for line in await self.store.runs(limit=100)]
        return sorted((run.state for run in runs if run), key=lambda state: (state.brief.depth, state.run_id))

    async def kinds(self) -> list[str]:
        """Of the entries of the run that was asked for."""
        return [entry.kind for entry in await self.store.entries((await self.state()).run_id)]

    def arrival(self, number: int) -> Arrival:
        """Message `number` of those that are not acknowledged."""
        delivery = self.bus.unacknowledged[number]
        return Arrival(subject=delivery.subject, body=delivery.body, place=str(delivery.place))

    # how it is made

    def build_anew(self) -> None:
        """A new process: all that was in memory is gone."""
        self.faulty: Any = FaultyStore(self.store, self.faults)
        self.brake, self.spending = Brake(), Spending(self.clock, self.usd_per_day, self._usd_of_callers.get)
        signing = Signing(KeyRing.fresh(), Path("nowhere"))
        self._publisher = Publisher(
            self.bus, self.clock, lambda _: True, self.capabilities, signing, lambda _: "", self.brake
        )
        quotas = Quotas(self.clock, self.spending, lambda _: UNBOUNDED)
        self.thinker = Thinker(
            self._model,
            NoSchemas(),
            Evidence(self.store, self.artifacts),
            self.clock,
            self.brake,
            SharedLimits(Pace(now=lambda: self.clock.now().timestamp()), self.spending, quotas),
            slots=self._slots,
        )
        self.turns = Turns(self.faulty, self._publisher, self.thinker, self.clock, self._committed, self.brake)
        self.intake = Intake(
            self.turns,
            self.offer,
            Results(capabilities=self.capabilities, children=ChildResults(self.faulty, self.artifacts)),
            self._new_runs,
            Admission(brake=self.brake, room=Room(self.store.counts, max_queued=1000), quotas=quotas),
            IncomingMetrics(Instruments()),
            self.clock,
        )

    def recovery(self, background: Background) -> Recovery:
        return Recovery(self.turns, self.faulty, self.store, self._publisher, background, self.brake, slots=4)

    def halting(self, background: Background) -> Halting:
        halts, going_on = Mortal(self.halts, self.faults, at=("keep",)), self.recovery(background).try_again
        return Halting(self.brake, halts, self.board, self.turns, self.store, self.clock, going_on)

    def _committed(self, moment: Moment) -> None:
        self.spending.committed(moment)
        self._on_commit(moment)

    async def _go_on(self) -> None:
        if not self.bus.unacknowledged:
            (run_id,) = await self.store.queued(1)
            await self.intake.begin(run_id)
            return
        delivery = self.bus.unacknowledged[0]
        if delivery.subject in FOR_THE_AGENT:
            await self.intake.receive(self.arrival(0))
            self.faults.point("before ack")
        elif delivery.subject.startswith(subjects.TOOL_REQUEST) and delivery.subject not in OWN:
            self.gateway.handle(delivery)
        self.bus.unacknowledged.remove(delivery)

    async def _next_life(self) -> bool:
        """Whether the new process lived through the resuming of what the last one left."""
        self.crashes += 1
        self.faults.strike_at(None)
        self.build_anew()
        survived = True
        try:
            await self.resume()
        except* Crash:
            survived = False
        return survived


OWN = {subjects.tool_request(subjects.SERVICE_AGENT)}
"""Requests that the agent has taken up by itself."""
