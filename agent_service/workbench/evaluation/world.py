"""A scenario played: the real loop over a real store, with everything around it played."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from time import monotonic

from agent_service.admission.limits import Admission, Room, SharedLimits
from agent_service.admission.rate_limits import RateLimiter
from agent_service.core.events import TimerFired
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.kill_switch import KillSwitch
from agent_service.metrics.wakes import IncomingMetrics
from agent_service.run.arrival import Arrival
from agent_service.run.changes import ChangeRecord
from agent_service.run.checks.arguments import ArgumentSchemas
from agent_service.run.checks.lookup import Evidence
from agent_service.run.intake import Intake, NewRuns
from agent_service.run.model_calls import ModelCaller
from agent_service.run.outbox import Publisher
from agent_service.run.ports import Answer, Model, ModelCall, Question
from agent_service.run.turn import Turns
from agent_service.store.sqlite import SqliteStore
from agent_service.trust.proofs import Capabilities, Signing
from agent_service.workbench.evaluation.played import Moment, PlayedBus, PlayedClock, PlayedGateway, PlayedPerson
from agent_service.workbench.evaluation.scenario import Scenario
from agent_service.workbench.evaluation.scoring import Observed, Said
from groundwork.service.keys import KeyRing
from groundwork.telemetry.metrics import Instruments
from schemas import subjects
from schemas.events import AgenticStart, Envelope, ToolRequest
from schemas.values import dataclass

Meanwhile = Callable[[Question], Awaitable[None]]
THINKING_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mind:
    """`fused`: one call reflects and plans. `verifies`: claims are checked."""

    model: Model
    fused: bool
    verifies: bool = False
    short_rules: bool = False


class SlowModel:
    """Gives any model thinking time, in which a person may speak; `seconds` are those it really took. Fills the port
    Model."""

    def __init__(self, model: Model, clock: PlayedClock, meanwhile: Meanwhile) -> None:
        self._model = model
        self._clock = clock
        self._meanwhile = meanwhile
        self.seconds = 0.0

    def prepare(self, question: Question) -> ModelCall:
        call = self._model.prepare(question)
        return ModelCall(estimate=call.estimate, make=partial(self._make, call, question))

    async def _make(self, call: ModelCall, question: Question) -> Answer:
        await self._clock.sleep(THINKING_S)
        await self._meanwhile(question)
        began = monotonic()
        try:
            return await call.make()
        finally:
            self.seconds += monotonic() - began


MOST_ENTRIES = 1000


class Endless(Exception):
    """A run has so many entries that it will not end."""


class World:
    def __init__(self, scenario: Scenario, store: SqliteStore, mind: Mind, *, name: str, folder: Path) -> None:
        self._scenario = scenario
        self._store = store
        self.name = name
        self._clock = PlayedClock(name)
        self._bus = PlayedBus(self._clock)
        self.gateway = PlayedGateway(scenario, self._bus, self._clock, folder)
        self._person = PlayedPerson(scenario, self._clock)
        self._runs: dict[str, RunState] = {}
        self.model = SlowModel(mind.model, self._clock, self._while_thinking)
        model_caller = ModelCaller(
            self.model,
            ArgumentSchemas(),
            Evidence(store, self.gateway.artifacts),
            self._clock,
            kill_switch := KillSwitch(),
            limits := SharedLimits.none(self._clock, RateLimiter()),
            slots=1,
        )
        ring = KeyRing.fresh()
        capabilities, signing = Capabilities(ring), Signing(ring, folder)
        publisher = Publisher(self._bus, lambda _: True, capabilities, signing, lambda _: "", kill_switch)
        clock, artifacts = self._clock, self.gateway.artifacts
        self._turns = Turns(
            store, publisher, model_caller, clock, self._committed, artifacts, capabilities, kill_switch
        )
        self._intake = Intake(
            self._turns,
            self.gateway,
            capabilities,
            NewRuns(
                policy=scenario.settings.policy(),
                fused=mind.fused,
                verify=mind.verifies,
                trace_url=None,
                short_rules=mind.short_rules,
            ),
            Admission(kill_switch=kill_switch, room=Room(store.counts, max_queued=MOST_ENTRIES), quotas=limits.quotas),
            IncomingMetrics(Instruments()),
            self._clock,
        )

    async def play(self) -> None:
        """From the wake until nothing is due. Raises Endless, LimitRefused, Unreadable, and what the model raises."""
        constraints = self._scenario.constraints.constraints(self._clock.now())
        start = AgenticStart(goal=self._scenario.goal, context=self._scenario.context, constraints=constraints)
        _, accepted = await self._intake.wake(f"eval-{self._scenario.name}", start, known=False, by="agentic eval")
        await self._intake.follow(accepted)
        while await self._next():
            longest = max(state.version for state in self._runs.values())
            if longest > MOST_ENTRIES:
                raise Endless(f"a run has {longest} entries and goes on")

    async def observed(self, broken: str = "") -> Observed:
        return await self._seen(next(iter(self._runs), ""), broken)

    async def _seen(self, run_id: str, broken: str = "") -> Observed:
        run = await self._store.load(run_id)
        children = [one.run_id for one in self._runs.values() if one.brief.parent and one.brief.parent.run_id == run_id]
        return Observed(
            state=run.state if run else None,
            entries=await self._store.entries(run_id),
            said=tuple(said for said in self._bus.said if _is_of(said, run_id)),
            broken=broken,
            children=tuple([await self._seen(child) for child in children]),
        )

    async def _next(self) -> bool:
        queued = next((run_id for run_id, state in self._runs.items() if state.status is Status.QUEUED), None)
        if queued is not None:
            await self._intake.begin(queued)
            return True
        arrives_at = self._bus.due[0][0] if self._bus.due else None
        due = min(((at, run_id) for run_id, state in self._runs.items() if (at := state.due_at)), default=None)
        if arrives_at is not None and (due is None or arrives_at <= due[0]):
            self._clock.advance_to(arrives_at)
            await self._deliver()
        elif due is not None:
            self._clock.advance_to(due[0])
            await self._turns.take(due[1], TimerFired(at=self._clock.now()))
        else:
            return False
        return True

    async def _deliver(self) -> None:
        _, place, subject, body = self._bus.next()
        arrival = Arrival(subject=subject, body=body, place=str(place))
        if not subject.startswith(f"{subjects.TOOL_REQUEST}."):
            await self._intake.receive(arrival)
            return
        request = Envelope[ToolRequest].model_validate_json(body).payload
        if request.executor == subjects.SERVICE_AGENT:
            await self._turns.children.receive(arrival)
        else:
            await self.gateway.take(request)
        if request.attempt == 1 and request.task is None:
            self._say(self._runs[request.run_id], "during_step", request.step)

    def _committed(self, change: ChangeRecord) -> None:
        state, before = change.after, change.before.waiting if change.before else None
        self._runs[state.run_id] = state
        if state.status in (Status.PAUSED, Status.ESCALATED) and type(before) is not type(state.waiting):
            self._say(state, "when_escalated" if state.status is Status.ESCALATED else "when_paused")

    def _say(self, state: RunState, moment: Moment, at: int | bool = True) -> None:
        for subject, body, after_s in self._person.says(state, self._place(state.run_id), moment, at):
            self._bus.send(subject, body, after_s=after_s)

    async def _while_thinking(self, question: Question) -> None:
        state, place = question.state, self._place(question.state.run_id)
        for subject, body, _ in self._person.says(state, place, "during_call", question.call):
            await self._intake.receive(Arrival(subject=subject, body=body, place=f"during-{question.call}"))

    def _place(self, run_id: str) -> int:
        return list(self._runs).index(run_id)


def _is_of(said: Said, run_id: str) -> bool:
    return said.payload.get("run_id") == run_id and said.subject != subjects.TOOL_RESULT
