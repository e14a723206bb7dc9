"""Trials (which scenarios, decided by whom, and what is expected then), played and judged, a few at a time, as rows."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent_service.admission.granting import LimitRefused
from agent_service.admission.rate_limits import RateLimiter
from agent_service.core.events import ModelReplied
from agent_service.errors import ModelError
from agent_service.models.opening import open_model
from agent_service.run.arrival import Unreadable
from agent_service.run.ports import Answer, Model, ModelCall, Question
from agent_service.settings import AgentSettings
from agent_service.store.sqlite import SqliteStore
from agent_service.views.folder.keeping import write
from agent_service.views.folder.workspace import Workspace
from agent_service.workbench.evaluation.expected import Expected, said_at_the_end, unmet
from agent_service.workbench.evaluation.observed import Observed
from agent_service.workbench.evaluation.scenario import Scenario, Script, follower_of
from agent_service.workbench.evaluation.violations import broken_rules, said_anyway
from agent_service.workbench.evaluation.world import PLAYED_MODEL, Endless, Mind, World
from schemas.values import dataclass, replace

WAITS_S = (2.0, 10.0, 30.0, 60.0, 60.0)
LONGEST_WAIT_S = 300.0


class WaitingModel:
    """Waits in real time for a busy provider, then fails the run: nothing can be measured. Fills the port Model."""

    def __init__(
        self, model: Model, rate_limiter: RateLimiter, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._model = model
        self._rate_limiter = rate_limiter
        self._sleep = sleep

    def prepare(self, question: Question) -> ModelCall:
        call = self._model.prepare(question)
        return replace(call, make=partial(self._patiently, call))

    async def _patiently(self, call: ModelCall) -> Answer:
        for wait_s in (*WAITS_S, None):
            try:
                return await self._paced(call)
            except ModelError as error:
                if error.remedy != "try_again":
                    raise
                if wait_s is None:
                    why = f"{error}; {len(WAITS_S) + 1} tries were in vain: evaluate again later"
                    raise ModelError("fail", error.error_class, why) from error
                longer_s = min(max(wait_s, error.retry_after_s or 0.0), LONGEST_WAIT_S)
            await self._sleep(longer_s)
        raise AssertionError("the last try returns or raises")

    async def _paced(self, call: ModelCall) -> Answer:
        admitted, used = (call.estimate.reserve.tokens if call.estimate else 0), 0
        await self._rate_limiter.admit(admitted)
        try:
            answer = await call.make()
            used = answer.usage.input_tokens + answer.usage.output_tokens
        finally:
            self._rate_limiter.settle(admitted, used)
        return answer


OBEYING = "obeying"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    scenario: Scenario
    name: str
    expected: tuple[Expected, ...]
    mind: Mind


@asynccontextmanager
async def trials_of(scenarios: Sequence[Scenario], settings: AgentSettings) -> AsyncIterator[list[Trial]]:
    """For the configured model; with the scripted one, each scenario's own scripts decide. Raises Misconfigured."""
    if settings.model.provider == "scripted":
        yield [trial for scenario in scenarios for trial in scripted(scenario)]
        return
    rates, fused = settings.model, settings.phases == "fused"
    rate_limiter = RateLimiter(requests_per_minute=rates.requests_per_minute, tokens_per_minute=rates.tokens_per_minute)
    async with open_model(settings.model) as model:
        mind = Mind(
            model=WaitingModel(model, rate_limiter),
            fused=fused,
            verifies=settings.verify and model.verifies,
            short_rules=rates.prompt == "short",
        )
        yield [of_model(scenario, mind) for scenario in scenarios]


def scripted(scenario: Scenario) -> list[Trial]:
    """With its own script and the obeying one, if any. Scripts are written for fused runs."""
    own, obeying = scenario.script, scenario.obeying
    expected = tuple(filter(None, (scenario.expect, own.expect)))
    trials = [_scripted(scenario, scenario.name, own, expected)]
    if obeying and obeying.expect:
        trials.append(_scripted(scenario, f"{scenario.name}-{OBEYING}", obeying, (obeying.expect,)))
    return trials


def of_model(scenario: Scenario, mind: Mind) -> Trial:
    return Trial(scenario=scenario, name=scenario.name, expected=(scenario.expect,), mind=mind)


def _scripted(scenario: Scenario, name: str, script: Script, expected: tuple[Expected, ...]) -> Trial:
    follower = follower_of(name, script)
    mind = Mind(model=follower, fused=True, verifies=follower.verifies)
    return Trial(scenario=scenario, name=name, expected=expected, mind=mind)


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
    replies = (change.event.model for change in seen.changes if isinstance(change.event, ModelReplied))
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
