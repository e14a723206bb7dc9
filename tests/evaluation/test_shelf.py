"""Scenario files: what is wrong is told with the file and the field, and folders of a user's own are added."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from agent_service.workbench.evaluation.expected import Expected
from agent_service.workbench.evaluation.observed import Happening
from agent_service.workbench.evaluation.scenario import ModelFault, PersonsSignal, Scenario, own_folder, read, scenarios
from agent_service.workbench.evaluation.tools import ToolAnswer
from groundwork.service.errors import Misconfigured
from tests.cli.calling import ROOT
from tests.evaluation.small import SMALL, written

DOCUMENT = ROOT / "docs" / "EVALUATION.md"


def test_scenarios_of_a_folder_are_added_and_chosen_by_patterns(tmp_path: Path) -> None:
    written(tmp_path, name="lamp-one")
    written(tmp_path, name="lamp-two")
    (tmp_path / "notes.txt").write_text("no scenario")
    folders = [own_folder(), tmp_path]
    assert [scenario.name for scenario in scenarios(folders, ["lamp-*"])] == ["lamp-one", "lamp-two"]
    assert len(scenarios(folders)) == len(scenarios(folders[:1])) + 2


FLAWS: list[tuple[dict[str, Any], str]] = [
    ({"title": None}, "title: "),
    ({"gaol": "x"}, "gaol: Extra inputs are not permitted"),
    ({"goal": "  "}, "goal: must not be blank"),
    ({"constraints": {"max_steps": 0}}, "constraints.max_steps: Input should be greater than or equal to 1"),
    ({"expect": {}}, "expect: expects nothing"),
    ({"expect": {"status": ["well"]}}, "expect.status.0: "),
    ({"expect": {"outcome": "(on"}}, "expect.outcome: is no regular expression: missing )"),
    ({"expect": {"must_call": ["lump"]}}, "expect.must_call: no such tool: lump"),
    ({"tools": [*SMALL["tools"], *SMALL["tools"]]}, "two have the same name: lamp, lamp"),
    (
        {"tools": [{**SMALL["tools"][0], "answers": [{"nth": 1}]}]},
        "tools.0.answers.0: needs exactly one",
    ),
    ({"signals": [{"kind": "resume"}]}, "signals.0: needs exactly one of during_step"),
    ({"model_faults": [{"call": 1}]}, "model_faults.0: needs exactly one of outage_s, refusal, cut"),
    ({"script": {"rules": []}}, "script.rules: "),
    ({"plugins": [{"plugin": "words", "folder": "/nowhere"}]}, "`ductile-gateway check --tools /nowhere` says why"),
    (
        {"script": {"rules": [{"phase": "plan", "plan": {"action": {}}}]}},
        "rules.0.plan.action.tool: Field required",
    ),
    ({"obeying": SMALL["script"]}, "obeying.expect: say what the program keeps such a model from"),
]


def test_what_is_wrong_is_told_with_the_file_and_the_field(tmp_path: Path) -> None:
    for changes, told in FLAWS:
        file = written(tmp_path, **changes)
        with pytest.raises(Misconfigured) as wrong:
            read(file)
        assert str(file) in str(wrong.value)
        assert told in str(wrong.value)


def test_two_files_with_one_name_are_told_both(tmp_path: Path) -> None:
    first = written(tmp_path)
    again = tmp_path / "zzz.yaml"
    again.write_text(first.read_text())
    with pytest.raises(Misconfigured, match="is the name of the scenario in") as wrong:
        scenarios([tmp_path])
    assert str(first) in str(wrong.value)
    assert str(again) in str(wrong.value)


def test_every_field_of_a_scenario_and_every_happening_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    models: tuple[type[BaseModel], ...] = (Scenario, Expected, PersonsSignal, ModelFault, ToolAnswer)
    names = {info.alias or name for model in models for name, info in model.model_fields.items()}
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()
    assert [happening for happening in get_args(Happening) if f"`{happening}`" not in text] == []
