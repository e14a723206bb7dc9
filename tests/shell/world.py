"""A small world for the agent: a bus that delivers again what was not acknowledged, a gateway that runs each call once,
a scripted mind, and a fault that can strike before or after anything the agent does.

A crash throws away everything but the store, the bus and the gateway's ledger, and builds the agent anew.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from agent_service.background import Background
from agent_service.core.events import ModelUsage
from agent_service.core.limits import LimitPolicy
from agent_service.core.phases import Action, Framing, Met, Phase, Plan, Reflection, Verdict
from agent_service.core.state import Limits, RunState
from agent_service.errors import ModelError, TryAgain
from agent_service.intake import Arrival, Intake
from agent_service.journal import Commit, Run
from agent_service.outbox import Outbox
from agent_service.ports import Answer, Estimate, Question, Unperformed, Wake
from agent_service.recovery import Recovery
from agent_service.thinker import Thinker
from agent_service.turn import Turns
from schemas import keys, subjects
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from schemas.events import Envelope, ToolOutput, ToolRequest, ToolResult
from tests.fakes import FakeClock, MemoryStore
from tests.runs import NOON

T = TypeVar("T")

APPEND = ToolOffer(name="append", route="append", commands=(ToolCommand(name="handle", tier="write"),))

FOR_THE_AGENT = {subjects.START, subjects.TOOL_RESULT, subjects.CANCEL, subjects.SIGNAL}


class Crash(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and go on."""


class Faults:
    """Counts the points that the agent passes, and strikes at the one it was told."""

    def __init__(self) -> None:
        self.passed = 0
        self.names: list[str] = []
        self._at: int | None = None

    def strike_at(self, point: int | None) -> None:
        self._at, self.passed, self.names = point, 0, []

    def point(self, name: str) -> None:
        self.passed += 1
        self.names.append(name)
        if self.passed == self._at:
            raise Crash(name)


class FaultyStore:
    """A store whose process may die before a commit, or right after it."""

    def __init__(self, store: MemoryStore, faults: Faults) -> None:
        self.refusals = 0
        """How many commits of replies are refused for now, as by a full disk."""
        self._store = store
        self._faults = faults

    async def accept(self, wake: Wake, commit: Commit) -> str:
        return await self._around("accept", self._store.accept(wake, commit))

    async def load(self, run_id: str) -> Run | None:
        return await self._store.load(run_id)

    async def commit(self, commit: Commit) -> None:
        if self.refusals and commit.entry.kind == "ModelReplied":
            self.refusals -= 1
            raise TryAgain("the disk is full", delay_s=0)
        await self._around("commit", self._store.commit(commit))

    def performed(self, run_id: str, seq: int) -> None:
        self._faults.point("before performed")
        self._store.performed(run_id, seq)

    async def unperformed(self, limit: int) -> Sequence[Unperformed]:
        return await self._store.unperformed(limit)

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        return await self._store.due(now, limit)

    async def _around(self, name: str, work: Awaitable[T]) -> T:
        with suppress_unawaited(work):
            self._faults.point(f"before {name}")
        done = await work
        self._faults.point(f"after {name}")
        return done


class suppress_unawaited:  # noqa: N801 # reads as the statement that it is
    """Closes a coroutine that a crash kept from running."""

    def __init__(self, work: Awaitable[Any]) -> None:
        self._work = work

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and asyncio.iscoroutine(self._work):
            self._work.close()


@dataclass(slots=True)
class Delivery:
    subject: str
    body: bytes
    place: int


class FakeBus:
    """Keeps what was published, once per key, and delivers it until it is acknowledged. Fills the port Bus."""

    def __init__(self, faults: Faults) -> None:
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
        self._bus = bus

    def handle(self, delivery: Delivery) -> None:
        request = Envelope[ToolRequest].model_validate_json(delivery.body).payload
        call = keys.call(request.run_id, request.step, request.tool, request.attempt)
        if call not in self.executed:
            self.executed[call] += 1
        result = ToolResult(
            run_id=request.run_id,
            step=request.step,
            tool=request.tool,
            status="ok",
            result=ToolOutput.model_validate({"summary": f"line {request.step}"}),
            completed_at=NOON,
            attempt=request.attempt,
        )
        key = keys.result(request.run_id, request.step, request.attempt)
        body = Envelope[ToolResult](type=subjects.TOOL_RESULT, payload=result, dedupe_key=key).body()
        self._bus.put(subjects.TOOL_RESULT, body, key)


class Mind:
    """Plans `steps` appends and is done. Counts its calls. Fills the port Model."""

    def __init__(self, faults: Faults, steps: int = 2) -> None:
        self.calls: Counter[tuple[str, int]] = Counter()
        self.outage: ModelError | None = None
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.argument: Any = None
        self._faults = faults
        self._steps = steps

    def estimate(self, question: Question) -> Estimate | None:
        del question
        return None

    async def decide(self, question: Question) -> Answer:
        self.calls[question.state.run_id, question.call] += 1
        self.asked.set()
        await self.may_answer.wait()
        self._faults.point(f"during {question.phase}")
        if self.outage:
            raise self.outage
        return self._answer(question.state, question.phase)

    def _answer(self, state: RunState, phase: Phase) -> Answer:
        usage = ModelUsage(input_tokens=10, output_tokens=5, cost_usd=0.001)
        plan = Plan(action=Action(tool="append", command="handle", arguments={"n": self.argument or state.step + 1}))
        if phase is Phase.FRAME:
            framing = Framing(goal_statement="Append.", definition_of_done=("one", "two", "three"))
            return Answer(decision=framing, usage=usage, model="mind")
        if phase is Phase.PLAN:
            return Answer(decision=plan, usage=usage, model="mind")
        done = len(state.completed) >= self._steps
        met = tuple(Met(item=i.id, evidence=f"step:{state.step}") for i in state.done_items) if done else ()
        verdict = Verdict.DONE if done else Verdict.CONTINUE
        reflection = Reflection(verdict=verdict, summary="seen", met=met)
        return Answer(decision=reflection, plan=None if done else plan, usage=usage, model="mind")


class NoSchemas:
    def flaws(self, *_: object) -> tuple[str, ...]:
        return ()


class Offer:
    async def catalog(self) -> Catalog:
        return Catalog(revision="1", tools=(APPEND,))


class World:
    """All of it, with the agent inside that a crash replaces."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.bus = FakeBus(self.faults)
        self.gateway = FakeGateway(self.bus)
        self.mind = Mind(self.faults)
        self.crashes = 0
        self.commits: list[Commit] = []
        self._build()

    def start(self, goal: str = "append twice", name: str = "a") -> None:
        """Somebody publishes `agentic.start`."""
        body = json.dumps({"type": subjects.START, "payload": {"goal": goal}, "dedupe_key": keys.start(name)}).encode()
        self.bus.put(subjects.START, body, keys.start(name))

    async def until_quiet(self) -> None:
        """Deliver everything, until nothing is left; a crash begins a new life."""
        while self.bus.unacknowledged:
            try:
                await self._deliver(self.bus.unacknowledged[0])
            except Crash:
                await self._next_life()

    async def fire_timers(self) -> None:
        """Let the time keeper find what is due, once."""
        async with asyncio.TaskGroup() as group:
            await self.recovery(Background(group)).fire_due(self.clock.now())

    async def state(self) -> RunState:
        """The only run's state."""
        (line,) = await self.store.runs(status=None, limit=10, before=None)
        run = await self.store.load(line.run_id)
        assert run is not None
        return run.state

    async def _deliver(self, delivery: Delivery) -> None:
        if delivery.subject.startswith(subjects.TOOL_REQUEST):
            self.gateway.handle(delivery)
        elif delivery.subject in FOR_THE_AGENT:
            await self.intake.receive(Arrival(subject=delivery.subject, body=delivery.body, place=str(delivery.place)))
            self.faults.point("before ack")
        self.bus.unacknowledged.remove(delivery)

    async def _next_life(self) -> None:
        self.crashes += 1
        self.faults.strike_at(None)
        self._build()
        async with asyncio.TaskGroup() as group:
            await self.recovery(Background(group)).resume_all()

    def recovery(self, background: Background) -> Recovery:
        return Recovery(self.turns, self.faulty, self.store, self._outbox, background, slots=4)

    def _build(self) -> None:
        self.faulty = FaultyStore(self.store, self.faults)
        self._outbox = Outbox(self.bus, self.clock)
        thinker = Thinker(self.mind, NoSchemas(), self.clock, slots=4)
        self.turns = Turns(self.faulty, self._outbox, thinker, self.commits.append)
        policy = LimitPolicy(defaults=Limits(deadline_at=NOON))
        self.intake = Intake(self.turns, Offer(), self.clock, policy=policy, fused=True)
