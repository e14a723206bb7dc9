"""Trials played and judged, a few at a time, each in a world and a store of its own, and what came of them as rows."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent_service.admission.granting import LimitRefused
from agent_service.core.events import ModelReplied
from agent_service.run.arrival import Unreadable
from agent_service.store.sqlite import SqliteStore
from agent_service.views.folder.rendering import write
from agent_service.views.folder.workspace import Workspace
from agent_service.workbench.evaluation.expected import Expected, said_at_the_end, unmet
from agent_service.workbench.evaluation.observed import Observed
from agent_service.workbench.evaluation.scenario import Scenario
from agent_service.workbench.evaluation.trials import Trial
from agent_service.workbench.evaluation.violations import broken_rules, said_anyway
from agent_service.workbench.evaluation.world import PLAYED_MODEL, Endless, World

SUMMED = ("passed", "steps", "tasks", "children", "calls", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`cost_usd` is null without a price, `cache_share` without tokens. `violations`: broken rules of the program."""

    scenario: str
    name: str
    title: str
    models: tuple[str, ...]
    run_id: str
    status: str
    ending_class: str
    ending: str
    steps: int
    tasks: int
    children: int
    calls: int
    tokens: int
    cost_usd: float | None
    input_tokens: int
    cache_read_tokens: int
    violations: tuple[str, ...]
    unmet: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.violations and not self.unmet

    @property
    def cache_share(self) -> float | None:
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else None

    def for_programs(self) -> dict[str, Any]:
        return {"passed": self.passed, **asdict(self), "cache_share": self.cache_share}


def judged(scenario: Scenario, name: str, *, expected: Sequence[Expected], seen: Observed) -> Result:
    state = seen.state
    never = tuple(secret for one in expected for secret in one.never_say)
    return Result(
        scenario=scenario.name,
        name=name,
        title=scenario.title,
        models=_models(seen),
        run_id=state.run_id if state else "",
        status=str(state.status) if state else "none",
        ending_class=state.ending_class if state else "",
        ending=said_at_the_end(state) if state else "",
        steps=state.step if state else 0,
        tasks=sum(run.tasks for run in seen.tree),
        children=sum(len(run.children) for run in seen.tree),
        calls=state.spent.calls if state else 0,
        tokens=state.spent.tokens if state else 0,
        cost_usd=state.spent.cost_usd if state else 0.0,
        input_tokens=state.spent.input_tokens if state else 0,
        cache_read_tokens=state.spent.cache_read_tokens if state else 0,
        violations=tuple(line for run in seen.tree for line in (*broken_rules(run), *said_anyway(run, never))),
        unmet=tuple(dict.fromkeys(line for one in expected for line in unmet(one, seen))),
    )


def totals(results: Sequence[Result]) -> dict[str, Any]:
    costs = [result.cost_usd for result in results]
    sent = sum(result.input_tokens for result in results)
    return {
        "scenarios": len(results),
        **{name: sum(getattr(result, name) for result in results) for name in SUMMED},
        "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
        "cache_share": sum(result.cache_read_tokens for result in results) / sent if sent else None,
        "violations": sum(len(result.violations) for result in results),
    }


def _models(seen: Observed) -> tuple[str, ...]:
    replies = (moment.event.model for moment in seen.moments if isinstance(moment.event, ModelReplied))
    return tuple(dict.fromkeys(model for model in replies if model != PLAYED_MODEL))


log = logging.getLogger(__name__)


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
            world = World(trial.scenario, store, trial.mind, name=trial.name, folder=Path(folder) / "plugins")
            seen = await world.observed(await _trouble(world))
            for run in seen.tree if trail else ():
                if trail and run.state:
                    await write(run.state.run_id, store, Workspace(trail), world.gateway.artifacts)
    return judged(trial.scenario, trial.name, expected=trial.expected, seen=seen)


async def _trouble(world: World) -> str:
    try:
        await world.play()
    except (Endless, LimitRefused, Unreadable) as error:
        return str(error)
    except Exception as error:  # one that breaks must not lose what the others found, and cost
        log.exception("a scenario broke", extra={"scenario": world.name})
        return f"it broke: {type(error).__name__}: {error}"
    return ""
