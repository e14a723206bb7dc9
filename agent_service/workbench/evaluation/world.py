"""One run of a scenario: the real loop over a real store, with everything around it played.

Rule: one thing happens at a time. What is due next happens at its instant: a message of the bus, or the run's timer.
A run has been played when nothing is due any more, so that what comes after its end is seen too.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial

from agent_service.arrival import Arrival
from agent_service.bus.argument_schemas import ArgumentSchemas
from agent_service.core.events import ModelUsage, TimerFired
from agent_service.core.phases import Refusal, Unusable
from agent_service.core.state import RunState
from agent_service.core.waiting import ForApproval, Status
from agent_service.errors import ModelError
from agent_service.evidence import Evidence
from agent_service.intake import Intake
from agent_service.metrics.incoming import IncomingMetrics
from agent_service.moments import Moment
from agent_service.pace import Pace
from agent_service.ports import Answer, Model, ModelCall, Question
from agent_service.publisher import Publisher
from agent_service.store.sqlite import SqliteStore
from agent_service.thinker import Thinker
from agent_service.turn import Turns
from agent_service.workbench.evaluation.observed import Observed
from agent_service.workbench.evaluation.played import PlayedBus, PlayedClock
from agent_service.workbench.evaluation.played_gateway import PlayedGateway
from agent_service.workbench.evaluation.scenario import ModelFault, PersonsSignal, Scenario
from groundwork.telemetry.metrics import Instruments
from schemas import subjects
from schemas.events import AgenticStart, Cancel, Envelope, Signal


class PlayedPerson:
    """Signals and cancels the run as the scenario's file says, over the bus: each thing once."""

    def __init__(self, scenario: Scenario, bus: PlayedBus, clock: PlayedClock) -> None:
        self._signals = scenario.signals
        self._when_paused: Iterator[PersonsSignal] = iter([s for s in scenario.signals if s.when_paused])
        self._when_escalated: Iterator[PersonsSignal] = iter([s for s in scenario.signals if s.when_escalated])
        self._bus = bus
        self._clock = clock
        self._done = 0

    def sees_step(self, state: RunState, step: int) -> None:
        """Step `step` was asked for, for the first time."""
        for signal in self._signals:
            if signal.during_step == step:
                self._bus.send(*self._said(state, signal), after_s=signal.after_s)

    def sees_rest(self, state: RunState) -> None:
        """The run rests for people, or has escalated."""
        escalated = state.status is Status.ESCALATED
        signal = next(self._when_escalated if escalated else self._when_paused, None)
        if signal:
            self._bus.send(*self._said(state, signal), after_s=signal.after_s)

    def during_call(self, state: RunState, call: int) -> Iterator[tuple[str, bytes]]:
        """What is said while model call `call` is being made: subjects and bodies."""
        for signal in self._signals:
            if signal.during_call == call:
                yield self._said(state, signal)

    def _said(self, state: RunState, signal: PersonsSignal) -> tuple[str, bytes]:
        self._done += 1
        if signal.kind == "cancel":
            cancel = Cancel(run_id=state.run_id, reason=signal.message)
            return subjects.CANCEL, Envelope[Cancel](type=subjects.CANCEL, payload=cancel).body()
        at = self._clock.later(signal.after_s)
        asked = state.waiting.subject_hash if isinstance(state.waiting, ForApproval) else None
        payload = Signal(
            run_id=state.run_id,
            signal_id=f"s{self._done}",
            kind=signal.kind,
            message=signal.message,
            constraints=signal.constraints.constraints(at) if signal.constraints else None,
            arguments_hash=signal.arguments_hash or asked,
            outcome=signal.outcome,
        )
        return subjects.SIGNAL, Envelope[Signal](type=subjects.SIGNAL, payload=payload).body()


Meanwhile = Callable[[Question], Awaitable[None]]
THINKING_S = 5.0
LOOK_AGAIN_S = 300.0
PLAYED_MODEL = "played"
"""Who gives an answer that a scenario puts in the model's place."""


class FaultyModel:
    """A model for which thinking takes time, and some calls of which bring no answer. Fills the port Model.

    It is the same whichever model is asked, so that the program's part in it shows with every model.
    """

    def __init__(self, model: Model, scenario: Scenario, clock: PlayedClock, meanwhile: Meanwhile) -> None:
        """`meanwhile` lets happen what happens while a question is thought about."""
        self._model = model
        self._meanwhile = meanwhile
        self._clock = clock
        self._faults = {fault.call: fault for fault in scenario.model_faults}
        self._price_unknown = scenario.price_unknown
        self._outages: dict[int, datetime] = {}
        """Until when, by the call that met it first."""
        self.broke: Exception | None = None
        """What the model raised that says nothing of what to do: the loop would make it an ending of the run."""

    def prepare(self, question: Question) -> ModelCall:
        with self._noting():
            call = self._model.prepare(question)
        estimate = call.estimate
        if estimate and self._price_unknown:
            estimate = replace(estimate, reserve=replace(estimate.reserve, cost_usd=None))
        return ModelCall(estimate=estimate, make=partial(self._make, call, question))

    async def _make(self, call: ModelCall, question: Question) -> Answer:
        self._clock.advance(THINKING_S)
        await self._meanwhile(question)
        fault = self._faults.get(question.call)
        answer = self._in_its_place(fault) if fault else None
        if answer is None:
            with self._noting():
                answer = await call.make()
        if not self._price_unknown:
            return answer
        return replace(answer, usage=replace(answer.usage, cost_usd=None))

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except ModelError:
            raise
        except Exception as error:
            self.broke = error
            raise

    def _in_its_place(self, fault: ModelFault) -> Answer | None:
        usage = ModelUsage(cost_usd=0.0)
        if fault.refusal is not None:
            return Answer(decision=Refusal(category=fault.refusal), usage=usage, model=PLAYED_MODEL)
        if fault.cut:
            reason = "the reply was cut at its most tokens"
            return Answer(decision=Unusable(reason=reason, cut=True), usage=usage, model=PLAYED_MODEL)
        if self._is_out(fault):
            raise ModelError("try_again", "model_unavailable", "the provider is down", retry_after_s=LOOK_AGAIN_S)
        return None

    def _is_out(self, fault: ModelFault) -> bool:
        until = self._outages.setdefault(fault.call, self._clock.later(fault.outage_s or 0.0))
        return self._clock.now() < until


MOST_ENTRIES = 3000


class Endless(Exception):
    """The run has so many entries that it will not end."""


class World:
    """The run of one scenario."""

    def __init__(
        self, scenario: Scenario, store: SqliteStore, model: Model, *, name: str, fused: bool, verifies: bool = False
    ) -> None:
        self._scenario = scenario
        self._store = store
        self.name = name
        self._clock = PlayedClock(name)
        self._bus = PlayedBus(self._clock)
        self.gateway = PlayedGateway(scenario, self._bus, self._clock)
        self._person = PlayedPerson(scenario, self._bus, self._clock)
        self._state: RunState | None = None
        self._model = FaultyModel(model, scenario, self._clock, self._while_thinking)
        thinker = Thinker(
            self._model,
            ArgumentSchemas(),
            Evidence(store, self.gateway.artifacts),
            self._clock,
            slots=1,
            pace=Pace(now=self._clock.seconds, sleep=self._clock.sleep),
        )
        self._turns = Turns(store, Publisher(self._bus, self._clock), thinker, self._clock, self._committed)
        policy = scenario.limits.policy()
        incoming = IncomingMetrics(Instruments())
        self._intake = Intake(
            self._turns, self.gateway, self._clock, policy=policy, fused=fused, verify=verifies, incoming=incoming
        )

    async def play(self) -> None:
        """From the wake until nothing is due. Raises Endless, LimitRefused, Unreadable, and what the model raises."""
        constraints = self._scenario.constraints.constraints(self._clock.now())
        start = AgenticStart(goal=self._scenario.goal, context=self._scenario.context, constraints=constraints)
        run_id, accepted = await self._intake.wake(f"eval-{self._scenario.name}", start, known=False, by="agentic eval")
        await self._intake.follow(accepted)
        await self._intake.begin(run_id)
        while await self._next():
            if self._model.broke:
                raise self._model.broke
            if self._state and self._state.version > MOST_ENTRIES:
                raise Endless(f"the run has {self._state.version} entries and goes on")

    async def observed(self, broken: str = "") -> Observed:
        """What can be seen of the run now."""
        run_id = self._state.run_id if self._state else ""
        run = await self._store.load(run_id)
        return Observed(
            goal=self._scenario.goal,
            offers=self.gateway.offers,
            state=run.state if run else None,
            entries=await self._store.entries(run_id),
            said=tuple(self._bus.said),
            artifacts=self.gateway.artifacts.paths,
            broken=broken,
        )

    async def _next(self) -> bool:
        """Let happen what is due next. Returns False when nothing is."""
        arrives_at, due_at = self._bus.next_at, self._state.due_at if self._state else None
        if arrives_at is not None and (due_at is None or arrives_at <= due_at):
            self._clock.advance_to(arrives_at)
            await self._deliver()
        elif due_at is not None and self._state:
            self._clock.advance_to(due_at)
            await self._turns.take(self._state.run_id, TimerFired(at=self._clock.now()))
        else:
            return False
        return True

    async def _deliver(self) -> None:
        message = self._bus.next()
        if message.subject.startswith(f"{subjects.TOOL_REQUEST}."):
            request = self.gateway.take(message.body)
            if request.attempt == 1 and self._state:
                self._person.sees_step(self._state, request.step)
        else:
            arrival = Arrival(subject=message.subject, body=message.body, place=str(message.place))
            await self._intake.receive(arrival)

    def _committed(self, moment: Moment) -> None:
        self._state = moment.after
        before = moment.before.waiting if moment.before else None
        rests = moment.after.status in (Status.PAUSED, Status.ESCALATED)
        if rests and type(before) is not type(moment.after.waiting):
            self._person.sees_rest(moment.after)

    async def _while_thinking(self, question: Question) -> None:
        for subject, body in self._person.during_call(question.state, question.call):
            await self._intake.receive(Arrival(subject=subject, body=body, place=f"during-{question.call}"))
