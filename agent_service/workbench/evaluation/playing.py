"""Trials (which scenarios, decided by whom, and what is expected then), played and judged, a few at a time, as rows."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_service.admission.granting import LimitRefused
from agent_service.core.events import ModelReplied
from agent_service.errors import ModelError
from agent_service.models.opening import open_model
from agent_service.run.arrival import Unreadable
from agent_service.run.ports import Answer, Model, ModelCall, Question
from agent_service.settings import AgentSettings
from agent_service.store.sqlite import SqliteStore
from agent_service.views.folder.keeping import write
from agent_service.views.folder.workspace import Workspace
from agent_service.workbench.evaluation.expected import Expected
from agent_service.workbench.evaluation.results import Result
from agent_service.workbench.evaluation.scenario import Scenario, Script, follower_of
from agent_service.workbench.evaluation.scoring import Observed, said_at_the_end, unmet
from agent_service.workbench.evaluation.world import Endless, Mind, World
from schemas.values import dataclass, replace

WAITS_S = (2.0, 10.0, 30.0, 60.0, 60.0)
LONGEST_WAIT_S = 300.0
SPENT = ("calls", "tokens", "input_tokens", "cache_read_tokens", "cost_usd")

log = logging.getLogger(__name__)


class WaitingModel:
    """Waits in real time for a busy provider, then fails the run: nothing can be measured. Fills the port Model."""

    def __init__(self, model: Model, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._model = model
        self._sleep = sleep

    def prepare(self, question: Question) -> ModelCall:
        call = self._model.prepare(question)
        return replace(call, make=partial(self._patiently, call))

    async def _patiently(self, call: ModelCall) -> Answer:
        for wait_s in WAITS_S:
            try:
                return await call.make()
            except ModelError as error:
                if error.remedy != "try_again":
                    raise
                longer_s = min(max(wait_s, error.retry_after_s or 0.0), LONGEST_WAIT_S)
            await self._sleep(longer_s)
        try:
            return await call.make()
        except ModelError as error:
            why = f"{error}; {len(WAITS_S) + 1} tries were in vain: evaluate again later"
            raise ModelError("fail", error.error_class, why) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """`nth`: of the runs of the same scenario, decided by the same model."""

    scenario: Scenario
    name: str
    expected: tuple[Expected, ...]
    mind: Mind
    nth: int = 1


@asynccontextmanager
async def trials_of(
    scenarios: Sequence[Scenario], settings: AgentSettings, repeat: int = 1
) -> AsyncIterator[list[Trial]]:
    """For the configured model; with the scripted one, each scenario's own scripts decide. Raises Misconfigured."""
    if settings.model.provider == "scripted":
        yield repeated((trial for scenario in scenarios for trial in scripted(scenario)), repeat)
        return
    async with open_model(settings.model) as model:
        mind = Mind(
            model=WaitingModel(model),
            fused=settings.phases == "fused",
            verifies=settings.verify and model.verifies,
            short_rules=settings.model.prompt == "short",
        )
        each = (Trial(scenario=one, name=one.name, expected=(one.expect,), mind=mind) for one in scenarios)
        yield repeated(each, repeat)


def repeated(trials: Iterable[Trial], times: int) -> list[Trial]:
    return [replace(trial, nth=nth) for trial in trials for nth in range(1, times + 1)]


def scripted(scenario: Scenario) -> list[Trial]:
    """With its own script and the obeying one, if any. Scripts are written for fused runs."""

    def trial(name: str, script: Script, *expected: Expected | None) -> Trial:
        model = follower_of(name, script)
        mind = Mind(model=model, fused=True, verifies=model.verifies)
        return Trial(scenario=scenario, name=name, expected=tuple(filter(None, expected)), mind=mind)

    own, obeying = scenario.script, scenario.obeying
    trials = [trial(scenario.name, own, scenario.expect, own.expect)]
    return [*trials, trial(f"{scenario.name}-obeying", obeying, obeying.expect)] if obeying else trials


def judged(trial: Trial, seen: Observed, seconds: float) -> Result:
    """`seconds`: how long its model calls took."""
    scenario, state = trial.scenario, seen.state
    lines = tuple(dict.fromkeys(line for one in trial.expected for line in unmet(one, seen)))
    result = Result(
        scenario=scenario.name,
        name=trial.name,
        title=scenario.title,
        group=scenario.group,
        unmet=lines,
        seconds=seconds,
    )
    if state is None:
        return result
    replies = [event.model for entry in seen.entries if isinstance(event := entry.decoded(), ModelReplied)]
    more = {
        "models": tuple(dict.fromkeys(replies)),
        "run_id": state.run_id,
        "status": state.status.value,
        "ending_class": state.ending_class,
        "ending": said_at_the_end(state),
        "steps": state.step,
        "tasks": sum(run.tasks(again=False) for run in seen.tree),
        "children": sum(len(run.children) for run in seen.tree),
        **{name: getattr(state.spent, name) for name in SPENT},
    }
    return result.model_copy(update=more)


async def evaluate(
    trials: Sequence[Trial],
    *,
    jobs: int = 1,
    trail: Path | None = None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """`trail`: a folder for the paper trail of every run."""
    slots = asyncio.Semaphore(jobs)

    async def one(trial: Trial) -> Result:
        async with slots:
            result = await play(trial, trail)
        on_result(result)
        return result

    async with asyncio.TaskGroup() as group:
        playing = [group.create_task(one(trial), name=trial.name) for trial in trials]
    return [task.result() for task in playing]


async def play(trial: Trial, trail: Path | None = None) -> Result:
    with TemporaryDirectory(prefix="agentic-eval-") as folder:
        async with SqliteStore.open(Path(folder)) as store:
            name = f"{trial.name} {trial.nth}" if trial.nth > 1 else trial.name
            world = World(trial.scenario, store, trial.mind, name=name, folder=Path(folder) / "plugins")
            seen = await world.observed(await _trouble(world))
            for run in seen.tree if trail else ():
                if trail and run.state:
                    await write(run.state.run_id, store, Workspace(trail), world.gateway.artifacts)
    return judged(trial, seen, world.model.seconds)


async def _trouble(world: World) -> str:
    try:
        await world.play()
    except (Endless, LimitRefused, Unreadable) as error:
        return str(error)
    except Exception as error:  # one that breaks must not lose what the others found, and cost
        log.exception("a scenario broke", extra={"scenario": world.name})
        return f"it broke: {type(error).__name__}: {error}"
    return ""
