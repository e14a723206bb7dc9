"""Scenario files: errors name file and field; a user's own folders are added."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent_service.workbench.evaluation.expected import HAPPENINGS, Expected
from agent_service.workbench.evaluation.scenario import (
    PersonAction,
    Scenario,
    ToolAnswer,
    read,
    scenarios,
)
from groundwork.service.errors import Misconfigured
from tests.cli.invoke import ROOT
from tests.evaluation.small_scenario import SMALL, written

DOCUMENT = ROOT / "docs" / "EVALUATION.md"


def test_scenarios_of_a_folder_are_added_and_chosen_by_patterns(tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    written(tmp_path, name="lamp-one")
    written(other, name="lamp-two")
    written(other, name="radio")
    (tmp_path / "notes.txt").write_text("no scenario")
    assert [scenario.name for scenario in scenarios([tmp_path, other])] == ["lamp-one", "lamp-two", "radio"]
    assert [scenario.name for scenario in scenarios([tmp_path, other], ["lamp-*"])] == ["lamp-one", "lamp-two"]


FLAWS: list[tuple[dict[str, Any], str]] = [
    ({"gaol": "x"}, "gaol: is not known here"),
    ({"expect": {}}, "expect: expects nothing"),
    ({"expect": {"outcome": "(on"}}, "expect.outcome: must be a valid regular expression"),
    ({"expect": {"must_call": ["lump"]}}, "expect.must_call: no such tool: lump"),
    ({"tools": [*SMALL["tools"], *SMALL["tools"]]}, "two have the same name: lamp, lamp"),
    ({"tools": [SMALL["tools"][0] | {"answers": [{"nth": 1}]}]}, "tools.0.answers.0: needs exactly one"),
    ({"signals": [{"kind": "resume"}]}, "signals.0: needs exactly one of during_step"),
    ({"plugins": [{"plugin": "words", "folder": "/nowhere"}]}, "`ductile-gateway check --tools /nowhere` says why"),
    ({"obeying": SMALL["script"]}, "obeying.expect: say what the program keeps such a model from"),
]


def test_what_is_wrong_is_told_with_the_file_and_the_field(tmp_path: Path) -> None:
    for changes, told in FLAWS:
        file = written(tmp_path, **changes)
        with pytest.raises(Misconfigured, match=f"{file}: .*{re.escape(told)}"):
            read(file)


def test_a_plugin_without_a_manifest_that_can_be_read_is_told_with_its_scenario(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for manifest in ("a: [", "name: p", "[]", "commands: [handle]"):
        (tmp_path / "p" / "manifest.yaml").write_text(manifest)
        with pytest.raises(Misconfigured, match=r"plugins\.0: there is no usable plugin p in"):
            read(written(tmp_path, plugins=[{"plugin": "p", "folder": str(tmp_path)}]))


def test_a_date_may_stand_beside_variants(tmp_path: Path) -> None:
    given = {"context": {"since": date(2026, 1, 1)}, "variants": {"one": {}}}
    assert [one.context for one in read(written(tmp_path, **given))] == [{"since": "2026-01-01"}]


def test_two_files_with_one_name_are_told_both(tmp_path: Path) -> None:
    first = written(tmp_path)
    again = first.rename(tmp_path / "zzz.yaml")
    written(tmp_path)
    with pytest.raises(Misconfigured, match=f"{again}: name: small is the name of the scenario in {first}"):
        scenarios([tmp_path])


def test_every_field_of_a_scenario_and_every_happening_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    models: tuple[type[BaseModel], ...] = (Scenario, Expected, PersonAction, ToolAnswer)
    names = {info.alias or name for model in models for name, info in model.model_fields.items()}
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()
    assert [happening for happening in HAPPENINGS if f"`{happening}`" not in text] == []
