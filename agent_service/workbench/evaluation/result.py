"""What came of a scenario, as a row for people and for programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent_service.core.events import ModelReplied
from agent_service.workbench.evaluation import model_faults as circumstances
from agent_service.workbench.evaluation.expected import Expected
from agent_service.workbench.evaluation.observed import Observed
from agent_service.workbench.evaluation.scenario import Scenario
from agent_service.workbench.evaluation.verdict import said_at_the_end, unmet
from agent_service.workbench.evaluation.violations import broken_rules, said_anyway


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row. `cost_usd` is null when a price is not known, `cache_share` when nothing was sent to a model.

    `violations`: rules of the program that were broken; `unmet`: expectations of the scenario that were not met.
    """

    scenario: str
    name: str
    """That of the scenario, or of its obeying decision maker."""
    title: str
    models: tuple[str, ...]
    run_id: str
    status: str
    ending_class: str
    ending: str
    steps: int
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
    """The row of a run that was seen."""
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
        calls=state.spent.calls if state else 0,
        tokens=state.spent.tokens if state else 0,
        cost_usd=state.spent.cost_usd if state else 0.0,
        input_tokens=state.spent.input_tokens if state else 0,
        cache_read_tokens=state.spent.cache_read_tokens if state else 0,
        violations=(*broken_rules(seen), *said_anyway(seen, never)),
        unmet=tuple(dict.fromkeys(line for one in expected for line in unmet(one, seen))),
    )


def totals(results: Sequence[Result]) -> dict[str, Any]:
    """The sums. A cost that is not known makes the sum unknown."""
    costs = [result.cost_usd for result in results]
    sent = sum(result.input_tokens for result in results)
    return {
        "scenarios": len(results),
        "passed": sum(result.passed for result in results),
        "steps": sum(result.steps for result in results),
        "calls": sum(result.calls for result in results),
        "tokens": sum(result.tokens for result in results),
        "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
        "cache_share": sum(result.cache_read_tokens for result in results) / sent if sent else None,
        "violations": sum(len(result.violations) for result in results),
    }


def _models(seen: Observed) -> tuple[str, ...]:
    """Who answered, as they name themselves; not what the scenario put in a model's place."""
    replies = (moment.event.model for moment in seen.moments if isinstance(moment.event, ModelReplied))
    return tuple(dict.fromkeys(model for model in replies if model != circumstances.NAME))
