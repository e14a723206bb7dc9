"""One run of a scenario: the real loop over a real store, with everything around it played.

Rule: one thing happens at a time. What is due next happens at its instant: a message of the bus, or the run's timer.
A run has been played when nothing is due any more, so that what comes after its end is seen too.
"""

from agent_service.bus.argument_schemas import ArgumentSchemas
from agent_service.core.events import TimerFired
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.intake import COUNTED, Arrival, Intake
from agent_service.journal import Commit
from agent_service.pace import Pace
from agent_service.ports import Model
from agent_service.publisher import Publisher
from agent_service.store.sqlite import SqliteStore
from agent_service.thinker import Thinker
from agent_service.turn import Turns
from agent_service.workbench.evaluation.model_faults import Circumstances
from agent_service.workbench.evaluation.observed import Observed
from agent_service.workbench.evaluation.played_bus import PlayedBus
from agent_service.workbench.evaluation.played_clock import PlayedClock
from agent_service.workbench.evaluation.played_gateway import PlayedGateway
from agent_service.workbench.evaluation.played_person import PlayedPerson
from agent_service.workbench.evaluation.scenario import Scenario
from groundwork.service.counts import Counts
from schemas import subjects
from schemas.events import AgenticStart

MOST_ENTRIES = 3000


class Endless(Exception):
    """The run has so many entries that it will not end."""


class World:
    """The run of one scenario."""

    def __init__(self, scenario: Scenario, store: SqliteStore, model: Model, *, name: str, fused: bool) -> None:
        self._scenario = scenario
        self._store = store
        self.name = name
        self._clock = PlayedClock(name)
        self._bus = PlayedBus(self._clock)
        self.gateway = PlayedGateway(scenario, self._bus, self._clock)
        self._person = PlayedPerson(scenario, self._bus, self._clock)
        self._state: RunState | None = None
        self._model = Circumstances(model, scenario, self._clock)
        thinker = Thinker(
            self._model,
            ArgumentSchemas(),
            self._clock,
            slots=1,
            pace=Pace(now=self._clock.seconds, sleep=self._clock.sleep),
        )
        self._turns = Turns(store, Publisher(self._bus, self._clock), thinker, self._clock, self._committed)
        policy = scenario.limits.policy()
        counts = Counts(COUNTED)
        self._intake = Intake(self._turns, self.gateway, self._clock, policy=policy, fused=fused, counts=counts)

    async def play(self) -> None:
        """From the wake until nothing is due. Raises Endless, LimitRefused, Unreadable, and what the model raises."""
        constraints = self._scenario.constraints.constraints(self._clock.now())
        start = AgenticStart(goal=self._scenario.goal, context=self._scenario.context, constraints=constraints)
        run_id, accepted = await self._intake.wake(f"eval-{self._scenario.name}", start, known=False)
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
            if request.attempt == 1:
                self._person.sees_step(request.run_id, request.step)
        else:
            arrival = Arrival(subject=message.subject, body=message.body, place=str(message.place))
            await self._intake.receive(arrival)

    def _committed(self, commit: Commit) -> None:
        paused_before = self._state is not None and self._state.status is Status.PAUSED
        self._state = commit.state
        if commit.state.status is Status.PAUSED and not paused_before:
            self._person.sees_pause(commit.state.run_id)
