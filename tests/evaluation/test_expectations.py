"""An unmet expectation says what was expected, what happened, and where to look."""

from pathlib import Path
from typing import Any

import yaml

from agent_service.workbench.evaluation.expected import Expected, unmet
from tests.evaluation.small_scenario import seen_of, small

ASKS_FIRST = Path(__file__).with_name("asks_first.yaml")
UNMET: list[tuple[dict[str, Any], str]] = [
    ({"status": ["escalated", "failed"]}, "expected status escalated or failed; it is done; the last entry, 6"),
    ({"outcome": "off"}, "expected an ending with /off/; the last entry, 6, says: 'The lamp is on.'"),
    ({"steps": {"at_least": 2}}, "expected steps: at least 2; there are 1: 1 lamp switch ok"),
    ({"must_call": [{"tool": "lamp", "command": "look"}]}, "expected calls of lamp look: at least 1; there are 0"),
    ({"must_call": [{"tool": "lamp", "when": "off"}]}, 'step 1 attempt 1 (lamp switch): {"state": "on"}'),
    ({"must_call": [{"tool": "lamp", "at_most": 0, "at_least": 0}]}, "expected calls of lamp: 0; there are 1"),
    ({"never_call": ["lamp"]}, "expected no call of lamp; the calls were: step 1 attempt 1 (lamp switch)"),
    ({"must_happen": ["pause"]}, "expected that this happens: pause; what happened: nothing special"),
    ({"never_say": ['"state":"on"']}, '\'"state":"on"\' is in agentic.tool_request.lamp'),
]
UNMET_OF_TASKS: list[tuple[dict[str, Any], str]] = [
    ({"tasks": {"at_most": 2}}, "expected tasks of steps: 0 to 2; there are 3; the calls were: step 1"),
    ({"rounds": {"at_least": 2}}, "expected rounds: at least 2; there are 1"),
    ({"children": {"at_least": 1}}, "expected runs started by it: at least 1; there are 0"),
    ({"must_call": [{"tool": "knowledge", "task": "^other$"}]}, "knowledge for task /^other$/: at least 1"),
    ({"never_call": [{"tool": "lamp", "task": "again"}]}, "step 1 again of round 2 attempt 1 (lamp"),
    ({"must_happen": ["task_failed"]}, "what happened: continuation (entry 5), parallel_tasks (entry 5)"),
]
MET_BY_THE_SMALL_ONE: list[dict[str, Any]] = [
    {"status": ["done"]},
    {"class": ["budget_steps"]},  # a class is of runs that are not done
    {"outcome": "on"},
    {"steps": {"at_least": 1, "at_most": 1}},
    {"must_call": ["lamp", {"tool": "lamp", "command": "switch", "when": "on", "at_most": 1}]},
    {"never_call": [{"tool": "lamp", "command": "look"}, {"tool": "lump"}]},
    {"never_happen": ["pause", "retry"]},
]


async def test_what_is_not_met_is_told_and_what_is_met_is_not(tmp_path: Path) -> None:
    for scenario, cases in ((small(), UNMET), (small(tools=yaml.safe_load(ASKS_FIRST.read_text())), UNMET_OF_TASKS)):
        (folder := tmp_path / str(len(cases))).mkdir()
        seen = await seen_of(scenario, folder)
        told = [(unmet(Expected.model_validate(expected), seen), text) for expected, text in cases]
        assert [(lines, text) for lines, text in told if len(lines) != 1 or text not in lines[0]] == []
    (folder := tmp_path / "met").mkdir()
    seen = await seen_of(small(), folder)
    assert [line for one in MET_BY_THE_SMALL_ONE for line in unmet(Expected.model_validate(one), seen)] == []
