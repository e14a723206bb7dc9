"""What is played: which scenarios, decided by whom, and what is expected then."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent_service.models.opening import open_model
from agent_service.pace import Pace
from agent_service.ports import Model
from agent_service.settings import AgentSettings
from agent_service.workbench.evaluation.cassette import Player
from agent_service.workbench.evaluation.expected import Expected
from agent_service.workbench.evaluation.scenario import Scenario, Script, follower_of
from agent_service.workbench.evaluation.waiting_model import Patient

OBEYING = "obeying"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mind:
    """Who decides. `fused`: whether one call reflects and plans."""

    model: Model
    fused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A scenario with one decision maker. `mind` makes it, and may raise Misconfigured."""

    scenario: Scenario
    name: str
    expected: tuple[Expected, ...]
    mind: Callable[[], Mind]


@asynccontextmanager
async def trials_of(
    scenarios: Sequence[Scenario], settings: AgentSettings, *, obeying: bool
) -> AsyncIterator[list[Trial]]:
    """The trials for the configured model. Raises Misconfigured.

    With the scripted one each scenario is decided by its own script, and, if `obeying`, by the one that obeys content.
    """
    if settings.model.provider == "scripted":
        yield [trial for scenario in scenarios for trial in scripted(scenario)[: 2 if obeying else 1]]
        return
    rates, fused = settings.model, settings.phases == "fused"
    pace = Pace(requests_per_minute=rates.requests_per_minute, tokens_per_minute=rates.tokens_per_minute)
    async with open_model(settings.model) as model:
        mind = Mind(model=Patient(model, pace), fused=fused)
        yield [of_model(scenario, lambda: mind) for scenario in scenarios]


def replayed(scenarios: Sequence[Scenario], folder: Path) -> list[Trial]:
    """The trials of the cassettes in `folder`: no model and no configuration is needed."""
    return [of_model(scenario, partial(_player, cassette_file(folder, scenario.name))) for scenario in scenarios]


def scripted(scenario: Scenario) -> list[Trial]:
    """The scenario with its own script, and with the one that obeys what it should not, if it has one.

    Scripts are written for fused runs, whatever is configured.
    """
    own, obeying = scenario.script, scenario.obeying
    expected = tuple(filter(None, (scenario.expect, own.expect)))
    trials = [_scripted(scenario, scenario.name, own, expected)]
    if obeying and obeying.expect:
        trials.append(_scripted(scenario, f"{scenario.name}-{OBEYING}", obeying, (obeying.expect,)))
    return trials


def of_model(scenario: Scenario, mind: Callable[[], Mind]) -> Trial:
    """The scenario, decided by a model that thinks for itself."""
    return Trial(scenario=scenario, name=scenario.name, expected=(scenario.expect,), mind=mind)


def cassette_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.jsonl"


def _player(file: Path) -> Mind:
    player = Player(file)
    return Mind(model=player, fused=player.fused)


def _scripted(scenario: Scenario, name: str, script: Script, expected: tuple[Expected, ...]) -> Trial:
    return Trial(
        scenario=scenario,
        name=name,
        expected=expected,
        mind=lambda: Mind(model=follower_of(name, script), fused=True),
    )
