"""A small scenario to change in tests, and how it is played."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from agent_service.store.sqlite import SqliteStore
from agent_service.workbench.evaluation.observed import Observed
from agent_service.workbench.evaluation.played import Said
from agent_service.workbench.evaluation.playing import Options, Result, play
from agent_service.workbench.evaluation.scenario import Scenario, follower_of
from agent_service.workbench.evaluation.trials import Trial, scripted
from agent_service.workbench.evaluation.violations import broken_rules
from agent_service.workbench.evaluation.world import World

Change = Callable[[Observed], Observed]

MET = [{"item": item, "evidence": "step:1"} for item in ("d1", "d2", "d3")]
SMALL: dict[str, Any] = {
    "name": "small",
    "title": "A small one",
    "why": "It is changed by tests.",
    "goal": "Switch the lamp on.",
    "tools": [
        {
            "name": "lamp",
            "description": "A lamp.",
            "output": "trusted",
            "commands": [
                {
                    "name": "switch",
                    "tier": "write",
                    "input_schema": {
                        "type": "object",
                        "properties": {"state": {"enum": ["on", "off"]}},
                        "required": ["state"],
                    },
                },
                {"name": "look", "tier": "read", "input_schema": {"type": "object"}},
            ],
            "answers": [{"result": {"summary": "it is on"}}],
        }
    ],
    "expect": {"status": ["done"]},
    "script": {
        "rules": [
            {"phase": "frame", "frame": {"goal_statement": "It is on.", "definition_of_done": ["a", "b", "c"]}},
            {
                "phase": "plan",
                "plan": {"action": {"tool": "lamp", "command": "switch", "arguments": {"state": "on"}}},
            },
            {
                "phase": "reflect",
                "reflect": {"verdict": "done", "summary": "It is on.", "met": MET, "outcome": "The lamp is on."},
            },
        ]
    },
}


def given(**changes: Any) -> dict[str, Any]:
    """The content of a file with a small scenario; `changes` replace its fields."""
    return {**copy.deepcopy(SMALL), **changes}


def small(**changes: Any) -> Scenario:
    return Scenario.model_validate(given(**changes))


def answering(*answers: dict[str, Any], **changes: Any) -> Scenario:
    """One whose tool answers like this."""
    tools = copy.deepcopy(SMALL["tools"])
    tools[0]["answers"] = list(answers)
    return small(tools=tools, **changes)


KNOWLEDGE: dict[str, Any] = {
    "name": "knowledge",
    "description": "Pages.",
    "output": "trusted",
    "commands": [{"name": "search", "tier": "read", "input_schema": {"type": "object", "required": ["query"]}}],
    "answers": [{"result": {"summary": "found"}}],
}
TWO_AND_BOTH = {
    "action": "multi-step",
    "tasks": [
        {"id": "here", "action": "retrieve", "query": "lamps here"},
        {"id": "there", "action": "retrieve", "query": "lamps there"},
        {"id": "both", "action": "retrieve", "query": "lamps that are both", "depends_on": ["here", "there"]},
    ],
}


def asking_first() -> Scenario:
    """One whose tool asks for three tasks before it answers."""
    tools = copy.deepcopy([SMALL["tools"][0], KNOWLEDGE])
    told = [{"when": '"continuations"', "result": {"summary": "it is on"}}, {"continuation": TWO_AND_BOTH}]
    tools[0]["answers"] = told
    return small(tools=tools)


def written(folder: Path, **changes: Any) -> Path:
    """The file of a small scenario."""
    content = given(**changes)
    file = folder / f"{content['name']}.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def trial_of(scenario: Scenario) -> Trial:
    """Decided by its own script."""
    return scripted(scenario)[0]


async def result_of(scenario: Scenario) -> Result:
    return await play(trial_of(scenario), Options())


async def seen_of(scenario: Scenario, folder: Path) -> Observed:
    """What is seen of its run."""
    async with SqliteStore.open(folder) as store:
        decides = follower_of(scenario.name, scenario.script)
        world = World(scenario, store, decides, name=scenario.name, folder=folder / "plugins", fused=True)
        await world.play()
        return await world.observed()


def reworded(one: Said, payload: dict[str, Any]) -> Said:
    body = json.loads(one.body)
    return replace(one, body=json.dumps({**body, "payload": {**body["payload"], **payload}}).encode())


def unfound(cases: Mapping[str, Sequence[Change]], seen: Observed) -> list[tuple[str, int]]:
    """The changes that break a rule, and are not found."""
    return [
        (rule, number)
        for rule, changes in cases.items()
        for number, change in enumerate(changes)
        if not any(line.startswith(rule.replace("_", " ")) for line in broken_rules(change(seen)))
    ]
