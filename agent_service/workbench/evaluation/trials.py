"""Plays and judges trials: which scenario, which model decides, and what is expected.

A scenario is played by the real loop over a real store in simulated surroundings.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Literal

from agent_service.admission.limits import SharedLimits
from agent_service.admission.spending import Spending
from agent_service.core.events import ModelReplied, TimerFired
from agent_service.core.state import RunState
from agent_service.core.waiting import Approval, Status
from agent_service.errors import LimitRefused
from agent_service.kill_switch import KillSwitch
from agent_service.metrics import IncomingMetrics
from agent_service.models.scripted_model import ScriptedModel
from agent_service.run.children import ChildRuns
from agent_service.run.citations import CitationChecker
from agent_service.run.inbound import InboundMessage, InvalidMessage
from agent_service.run.intake import Intake
from agent_service.run.journal import Commit
from agent_service.run.model_calls import ModelCaller
from agent_service.run.outbox import Publisher
from agent_service.run.ports import Model, ModelCall, ModelProvider, ModelQuestion
from agent_service.run.turn import Turns
from agent_service.settings import AgentSettings
from agent_service.store.runs import RunStore
from agent_service.trust.proofs import Signing
from agent_service.views.workspace.files import Workspace
from agent_service.views.workspace.rendering import write
from agent_service.workbench.evaluation.expected import REQUESTS, Expected, ObservedRun, ending_text, unmet
from agent_service.workbench.evaluation.results import Result
from agent_service.workbench.evaluation.scenario import PersonAction, Scenario
from agent_service.workbench.evaluation.simulated import THINKING_S, SimulatedBus, SimulatedGateway, patiently
from groundwork.service.keys import KeyRing
from groundwork.telemetry.metrics import Instruments
from schemas import subjects
from schemas.events import AgenticStart, Cancel, Envelope, Signal, ToolRequest
from schemas.values import dataclass, replace

MOST_ENTRIES = 1000
SPENT = ("calls", "tokens", "input_tokens", "cache_read_tokens", "cost_usd")

Moment = Literal["during_step", "during_call", "when_paused", "when_escalated"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trial:
    """`nth` counts the runs of the same scenario with the same model. `settings`: the scenario's own replace some."""

    scenario: Scenario
    name: str
    expected: tuple[Expected, ...]
    model: Model
    settings: AgentSettings
    nth: int = 1


def trials_of(
    scenarios: Sequence[Scenario], settings: AgentSettings, model: ModelProvider, repeat: int = 1
) -> list[Trial]:
    """`model` belongs to the settings; the scripts of the scenarios replace a scripted one."""
    if settings.model.provider == "scripted":
        found = [trial for scenario in scenarios for trial in scripted(scenario)]
    else:
        made = settings.for_model(verifies=model.verifies)
        found = [Trial(one, one.name, (one.expect,), model, made) for one in scenarios]
    return [replace(trial, nth=nth) for trial in found for nth in range(1, repeat + 1)]


def scripted(scenario: Scenario) -> list[Trial]:
    """Trials with the scenario's own script and its obeying one. Scripts are written for fused runs."""
    trials = list[Trial]()
    for name, script in ((scenario.name, scenario.script), (f"{scenario.name}-obeying", scenario.obeying)):
        if script:
            model = ScriptedModel(name=name, rules=script.rules)
            expected = (None if script is scenario.obeying else scenario.expect), script.expect
            made = scenario.settings.for_model(verifies=model.verifies)
            trials.append(Trial(scenario, name, tuple(filter(None, expected)), model, made))
    return trials


async def evaluate(
    trials: Sequence[Trial],
    *,
    jobs: int = 1,
    trail: Path | None = None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Writes the paper trail of every run to the folder `trail`."""
    slots = asyncio.Semaphore(jobs)

    async def one(trial: Trial) -> Result:
        async with slots:
            result = await play(trial, trail)
        on_result(result)
        return result

    return await asyncio.gather(*map(one, trials))


async def play(trial: Trial, trail: Path | None = None) -> Result:
    """Plays and judges the trial, whatever breaks: an error must not lose what the others found, and cost."""
    seen, seconds = ObservedRun(state=None, entries=(), published=()), 0.0
    try:
        with TemporaryDirectory(prefix="agentic-eval-") as folder:
            async with RunStore.open(Path(folder)) as store:
                world = World(trial, store, Path(folder) / "plugins")
                try:
                    await world.play()
                finally:
                    seen, seconds = await world.observe(), world.seconds
                    for run in seen.tree:
                        if trail and run.state:
                            await write(run.state.run_id, store, Workspace(trail), world.gateway)
    except (LimitRefused, InvalidMessage, Endless) as error:
        seen = replace(seen, broken=str(error))
    except Exception as error:
        log.exception("a scenario broke", extra={"scenario": trial.name})
        seen = replace(seen, broken=f"{type(error).__name__}: {error}")
    return _judge(trial, seen, seconds)


def _judge(trial: Trial, seen: ObservedRun, seconds: float) -> Result:
    scenario, state, facts = trial.scenario, seen.state, dict[str, Any]()
    if state:
        replies = [event.model for entry in seen.entries if isinstance(event := entry.decoded(), ModelReplied)]
        facts = {name: getattr(state.spent, name) for name in SPENT}
        facts |= {"models": tuple(dict.fromkeys(replies)), "run_id": state.run_id, "steps": state.step}
        facts |= {"status": state.status.value, "ending_class": state.ending_class, "ending": ending_text(state)}
    return Result(
        scenario=scenario.name,
        name=trial.name,
        title=scenario.title,
        group=scenario.group,
        unmet=tuple(dict.fromkeys(line for one in trial.expected for line in unmet(one, seen))),
        seconds=seconds,
        tasks=sum(run.tasks(again=False) for run in seen.tree),
        children=sum(len(run.children) for run in seen.tree),
        **facts,
    )


class Endless(Exception):
    """A run goes on and on."""


class World:
    def __init__(self, trial: Trial, store: RunStore, folder: Path) -> None:
        """`folder` is for the files of plugins. `seconds` sums the real time of model calls."""
        self.seconds, self.is_free = 0.0, trial.model.is_free
        self._model, self._scenario, self._store = trial.model, trial.scenario, store
        self._bus = bus = SimulatedBus(f"{trial.name} {trial.nth}" if trial.nth > 1 else trial.name)
        self.gateway = SimulatedGateway(trial.scenario, bus, folder)
        self._left, self._ids = [*trial.scenario.signals], count(1)
        self._runs: dict[str, RunState] = {}
        own = {"limits": trial.scenario.limits, "continuations": trial.scenario.continuations, "trace_url": None}
        settings, kill_switch, limits = trial.settings.model_copy(update=own), KillSwitch(), SharedLimits(Spending(bus))
        evidence = CitationChecker(store, self.gateway)
        caller = ModelCaller(self, evidence, bus, kill_switch, limits, asyncio.Semaphore(1))
        publisher = Publisher(bus, store, Signing(KeyRing.fresh(), folder), kill_switch)
        self._turns = Turns(store, publisher, caller, bus, [self._committed])
        self._children = ChildRuns(self._turns, self.gateway)
        self._intake = Intake(self._turns, self.gateway, settings, IncomingMetrics(Instruments()))

    def prepare(self, question: ModelQuestion) -> ModelCall:
        call = self._model.prepare(question)
        return replace(call, make=partial(self._think, call, question))

    async def _think(self, call: ModelCall, question: ModelQuestion) -> ModelReplied:
        """Thinks in simulated time, in which a person may act."""
        await self._bus.sleep(THINKING_S)
        for subject, body, _ in self._of_a_person(question.state, "during_call", question.call):
            await self._intake.receive(InboundMessage(subject=subject, body=body, place=f"during-{question.call}"))
        began = monotonic()
        try:
            return await (patiently(call) if call.reserved else call.make())  # a script waits in simulated time
        finally:
            self.seconds += monotonic() - began

    async def play(self) -> None:
        """Plays from the wake until no message or timer is due. Raises Endless."""
        constraints = self._scenario.constraints.constraints(self._bus.now())
        start = AgenticStart(goal=self._scenario.goal, context=self._scenario.context, constraints=constraints)
        _, accepted = await self._intake.wake(f"eval-{self._scenario.name}", start, known=False, by="agentic eval")
        await self._turns.follow(accepted)
        while await self._next():
            longest = max(state.version for state in self._runs.values())
            if longest > MOST_ENTRIES:
                raise Endless(f"a run has {longest} entries and goes on")

    async def observe(self, run_id: str | None = None) -> ObservedRun:
        """The scenario's run, or a child of it."""
        run_id = next(iter(self._runs), "") if run_id is None else run_id
        run = await self._store.load(run_id)
        children = [one.run_id for one in self._runs.values() if one.brief.parent and one.brief.parent.run_id == run_id]
        published = (one for one in self._bus.published.values() if one.subject != subjects.TOOL_RESULT)
        return ObservedRun(
            state=run.state if run else None,
            entries=await self._store.entries(run_id),
            published=tuple(one for one in published if one.run_id == run_id),
            children=tuple([await self.observe(child) for child in children]),
        )

    async def _next(self) -> bool:
        queued = next((run_id for run_id, state in self._runs.items() if state.status is Status.QUEUED), None)
        if queued is not None:
            await self._turns.follow(await self._intake.begin(queued))
            return True
        due = min(((at, run_id) for run_id, state in self._runs.items() if (at := state.due_at)), default=None)
        if self._bus.due and (due is None or self._bus.due[0][0] <= due[0]):
            self._bus.advance_to(self._bus.due[0][0])
            await self._deliver()
        elif due is not None:
            self._bus.advance_to(due[0])
            await self._turns.take(due[1], TimerFired(at=self._bus.now()))
        else:
            return False
        return True

    async def _deliver(self) -> None:
        _, place, subject, body = heapq.heappop(self._bus.due)
        arrival = InboundMessage(subject=subject, body=body, place=str(place))
        if not subject.startswith(REQUESTS):
            await self._intake.receive(arrival)
            return
        request = Envelope[ToolRequest].model_validate_json(body).payload
        if request.executor == subjects.SERVICE_AGENT:
            await self._children.receive(arrival)
        else:
            await self.gateway.take(request)
        if request.attempt == 1 and request.task is None:
            self._person_acts(self._runs[request.run_id], "during_step", request.step)

    def _committed(self, change: Commit) -> None:
        state, before = change.state, change.before.waiting if change.before else None
        self._runs[state.run_id] = state
        if state.status in (Status.PAUSED, Status.ESCALATED) and type(before) is not type(state.waiting):
            self._person_acts(state, "when_escalated" if state.status is Status.ESCALATED else "when_paused")

    def _person_acts(self, state: RunState, moment: Moment, at: int | bool = True) -> None:
        for subject, body, after_s in self._of_a_person(state, moment, at):
            self._bus.deliver(subject, body, after_s=after_s)

    def _of_a_person(self, state: RunState, moment: Moment, at: int | bool) -> Iterator[tuple[str, bytes, float]]:
        """Yields subject, body and delay in seconds of each action that is due, once. Of several for the same pause it
        yields only the next. Place 0 is the scenario's run, place n its n-th child.
        """
        place = list(self._runs).index(state.run_id)
        fitting = [one for one in self._left if getattr(one, moment) == at and (one.child or 0) == place]
        chosen = fitting[:1] if at is True else fitting
        self._left = [one for one in self._left if not any(one is sent for sent in chosen)]  # two may be alike
        yield from ((*self._message_of(state, signal), signal.after_s) for signal in chosen)

    def _message_of(self, state: RunState, signal: PersonAction) -> tuple[str, bytes]:
        fields: dict[str, Any] = {"run_id": state.run_id}
        if signal.kind == "cancel":
            cancel = Cancel(**fields, reason=signal.message)
            return subjects.CANCEL, Envelope[Cancel](type=subjects.CANCEL, payload=cancel).body()
        fields |= {name: getattr(signal, name) for name in ("kind", "message", "outcome")}
        asked = state.ask.subject_hash if isinstance(state.ask, Approval) else None
        payload = Signal(
            **fields,
            signal_id=f"s{next(self._ids)}",
            constraints=signal.constraints and signal.constraints.constraints(self._bus.later(signal.after_s)),
            arguments_hash=signal.arguments_hash or asked,
        )
        return subjects.SIGNAL, Envelope[Signal](type=subjects.SIGNAL, payload=payload).body()
