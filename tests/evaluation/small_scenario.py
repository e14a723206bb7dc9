"""A small scenario for tests to change and play."""

from pathlib import Path
from typing import Any

import yaml

from agent_service.store.runs import RunStore
from agent_service.workbench.evaluation.expected import ObservedRun
from agent_service.workbench.evaluation.scenario import Scenario
from agent_service.workbench.evaluation.trials import World, scripted

SMALL: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("small.yaml").read_text(encoding="utf-8"))


def small(**changes: Any) -> Scenario:
    return Scenario.model_validate(SMALL | changes)


def written(folder: Path, **changes: Any) -> Path:
    content = SMALL | changes
    file = folder / f"{content['name']}.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


async def seen_of(scenario: Scenario, folder: Path) -> ObservedRun:
    async with RunStore.open(folder) as store:
        (trial, *_) = scripted(scenario)
        world = World(trial, store, folder / "plugins")
        await world.play()
        return await world.observe()
