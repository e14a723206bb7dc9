"""Trials played and judged, a few at a time, each in a world and a store of its own."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_service.core.limits import LimitRefused
from agent_service.errors import Misconfigured
from agent_service.intake import Unreadable
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.folder.writer import rewrite
from agent_service.workbench.evaluation.cassette import NotRecorded, Recorder
from agent_service.workbench.evaluation.observed import Observed
from agent_service.workbench.evaluation.result import Result, judged
from agent_service.workbench.evaluation.trials import Mind, Trial, cassette_file
from agent_service.workbench.evaluation.world import Endless, World

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`record`: where cassettes are written, without `secrets`. `trail`: where the runs' paper trails are kept."""

    jobs: int = 1
    record: Path | None = None
    secrets: tuple[str, ...] = ()
    trail: Path | None = None


async def evaluate(
    trials: Sequence[Trial], options: Options, on_result: Callable[[Result], None] = lambda _: None
) -> list[Result]:
    """Play all trials. The results are in the order of the trials; each is told as soon as it is there."""
    slots = asyncio.Semaphore(options.jobs)

    async def one(trial: Trial) -> Result:
        async with slots:
            result = await play(trial, options)
        on_result(result)
        return result

    async with asyncio.TaskGroup() as group:
        playing = [group.create_task(one(trial), name=trial.name) for trial in trials]
    return [task.result() for task in playing]


async def play(trial: Trial, options: Options) -> Result:
    """Play one trial to its end and judge it."""
    try:
        mind = trial.mind()
    except Misconfigured as error:
        seen = Observed(goal="", offers=(), state=None, entries=(), said=(), artifacts=frozenset(), broken=str(error))
    else:
        seen = await _played(trial, mind, options)
    return judged(trial.scenario, trial.name, expected=trial.expected, seen=seen)


async def _played(trial: Trial, mind: Mind, options: Options) -> Observed:
    recorder = Recorder(mind.model) if options.record else None
    with TemporaryDirectory(prefix="agentic-eval-") as folder:
        async with SqliteStore.open(Path(folder)) as store:
            world = World(trial.scenario, store, recorder or mind.model, name=trial.name, fused=mind.fused)
            seen = await world.observed(await _trouble(world))
            if options.trail and seen.state:
                await rewrite(seen.state.run_id, store, Workspace(options.trail), world.gateway.artifacts)
    if recorder and options.record and not seen.broken:
        file = cassette_file(options.record, trial.name)
        recorder.save(file, scenario=trial.scenario.name, fused=mind.fused, secrets=options.secrets)
    return seen


async def _trouble(world: World) -> str:
    """Play to the end; why that could not be done, or nothing."""
    try:
        await world.play()
    except (NotRecorded, Endless, LimitRefused, Unreadable) as error:
        return str(error)
    except Exception as error:  # one that breaks must not lose what the others found, and cost
        log.exception("a scenario broke", extra={"scenario": world.name})
        return f"it broke: {type(error).__name__}: {error}"
    return ""
