"""Results of an evaluation: one per run, and rates per group of scenarios. Pure."""

from collections.abc import Mapping, Sequence
from math import comb, sqrt
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, computed_field

from groundwork.service.errors import Misconfigured
from schemas.fields import validation_flaws
from schemas.values import dataclass

Group = Literal["work", "people", "recovery", "injections"]
ALL = "all"
Z = NormalDist().inv_cdf(0.975)
Interval = tuple[float, float]


class Result(BaseModel):
    """One run with its child runs. `seconds` sums its model calls; `cost_usd` is null without a price."""

    model_config = ConfigDict(frozen=True)

    scenario: str
    name: str
    title: str
    group: str
    unmet: tuple[str, ...]
    models: tuple[str, ...] = ()
    run_id: str = ""
    status: str = "none"
    ending_class: str = ""
    ending: str = ""
    steps: int = 0
    tasks: int = 0
    children: int = 0
    calls: int = 0
    tokens: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cost_usd: float | None = 0.0
    seconds: float = 0.0

    @computed_field  # type: ignore[prop-decorator]  # pydantic's form
    @property
    def passed(self) -> bool:
        return not self.unmet


def grouped(results: Sequence[Result], field: str) -> dict[str, list[Result]]:
    values = dict.fromkeys(getattr(result, field) for result in results)
    return {value: [result for result in results if getattr(result, field) == value] for value in values}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Pass rates. `low` to `high` is the 95 % interval (Wilson) of `rate`. `pass_k` is the unbiased estimate of the
    chance that `k` runs of one scenario all pass (tau-bench, arXiv 2406.12045). Tokens, seconds and USD of all runs are
    divided by the runs that passed; null if none passed or without a price."""

    runs: int
    passed: int
    rate: float
    low: float
    high: float
    k: int
    pass_k: float
    tokens: float | None
    seconds: float | None
    cost_usd: float | None

    @classmethod
    def of(cls, results: Sequence[Result]) -> Self:
        counts = [[result.passed for result in runs_of] for runs_of in grouped(results, "name").values()]
        runs, passed, k = len(results), sum(map(sum, counts)), min(map(len, counts))
        low, high = wilson(passed, runs)
        costs = [result.cost_usd for result in results if result.cost_usd is not None]
        return cls(
            runs=runs,
            passed=passed,
            rate=passed / runs,
            low=low,
            high=high,
            k=k,
            pass_k=fmean(comb(sum(runs_of), k) / comb(len(runs_of), k) for runs_of in counts),
            tokens=sum(result.tokens for result in results) / passed if passed else None,
            seconds=sum(result.seconds for result in results) / passed if passed else None,
            cost_usd=sum(costs) / passed if passed and len(costs) == runs else None,
        )

    def since(self, before: "Rates") -> tuple[float, Interval]:
        """Returns the rise of the rate since `before` and its 95 % interval (Newcombe)."""
        higher = self.rate - before.rate
        down = sqrt((self.rate - self.low) ** 2 + (before.high - before.rate) ** 2)
        up = sqrt((self.high - self.rate) ** 2 + (before.rate - before.low) ** 2)
        return higher, (higher - down, higher + up)


def wilson(passed: int, runs: int) -> Interval:
    rate, spread = passed / runs, Z * Z / runs
    middle = rate + spread / 2
    half = Z * sqrt((rate * (1 - rate) + spread / 4) / runs)
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


class ConfigResults(BaseModel):
    """All runs with one configuration file, which is the label. `about` holds what else the figures depend on."""

    label: str
    about: dict[str, str | None] = {}
    results: list[Result]

    @computed_field  # type: ignore[prop-decorator]  # pydantic's form
    @property
    def rates(self) -> Mapping[str, Rates]:
        groups = grouped(self.results, "group") | ({ALL: self.results} if self.results else {})
        return {group: Rates.of(results) for group, results in groups.items()}

    @property
    def by_name(self) -> dict[str, list[Result]]:
        return grouped(self.results, "name")


class Evaluation(BaseModel):
    """Document of `agentic eval --json`."""

    ok: bool
    played: list[ConfigResults]


def read(file: Path) -> list[ConfigResults]:
    """Reads an output of `agentic eval --json`; labels get the file's name too. Raises Misconfigured."""
    try:
        earlier = Evaluation.model_validate_json(file.read_bytes()).played
    except (OSError, ValidationError) as error:
        why = validation_flaws(error, whole="the whole") if isinstance(error, ValidationError) else error
        raise Misconfigured(f"{file} is not an output of `agentic eval --json`: {why}") from error
    return [one.model_copy(update={"label": f"{one.label} ({file.stem})"}) for one in earlier]
