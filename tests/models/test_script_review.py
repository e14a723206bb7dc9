"""Scripts before they are used: what is wrong, what is left open, and the schema that an editor goes by."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_service.models.script_review import Review, review
from tests.cli.calling import agentic_here
from tests.kit.pages import ROOT

FRAME: dict[str, Any] = {"phase": "frame", "frame": {"goal_statement": "$goal", "definition_of_done": ["a", "b", "c"]}}
ACTION = {"tool": "echo", "command": "handle", "arguments": {"message": "$goal"}}
PLAN = {"phase": "plan", "plan": {"action": ACTION}}
MET = {"item": "d1", "evidence": "step:1"}
DONE: dict[str, Any] = {"phase": "reflect", "reflect": {"verdict": "done", "summary": "It is."}}
SCRIPTS = sorted([*ROOT.glob("examples/*/script.yaml"), *ROOT.glob("tests/*/script.yaml")])


def reviewed(folder: Path, *rules: dict[str, Any]) -> Review:
    file = folder / "script.yaml"
    file.write_text(yaml.safe_dump({"name": "one", "rules": list(rules)}))
    return review(file)


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_of_the_scripts_that_come_along_none_leaves_anything_open(file: Path) -> None:
    found = review(file)
    assert (found.flaws, found.advice) == ((), ())


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({**PLAN, "plan": {"action": ACTION, "rational": "so"}}, "rules.1.plan: .*rational"),
        ({**PLAN, "plan": {"action": {**ACTION, "comand": "x"}}}, "rules.1.plan.action: .*comand"),
        ({**DONE, "reflect": {**DONE["reflect"], "met": [{**MET, "qoute": "x"}]}}, "rules.1.reflect.met.0: .*qoute"),
        ({**PLAN, "wen": {}}, "rules.1.wen"),
        ({**PLAN, "ask": {"question": "which?"}}, "exactly one of"),
        ({"phase": "plan"}, "exactly one of"),
        ({**PLAN, "when": {"goal": "("}}, "rules.1.when.goal: is no regular expression"),
        ({**PLAN, "when": {True: "x"}}, "rules.1.when: the key True is no text: put it in quotes"),
        ({**DONE, "reflect": {"verdict": "finished", "summary": "x"}}, "^rules.1.reflect.verdict: "),
        ({"phase": "fram", "unusable": "x"}, "rules.1.phase: must be one of frame, plan, reflect, compact, verify"),
        ({**FRAME, "frame": {**FRAME["frame"], "definition_of_done": ["a"]}}, "rules.1.frame: .* 3 to 7 items"),
        ({**DONE, "phase": "plan"}, "rules.1: in phase plan the only verdict of `reflect` is escalate"),
        ({**PLAN, "phase": "verify"}, "rules.1: `plan` answers no question of phase verify"),
        ({"phase": "plan", "wait": {"why": "x", "until": "2026-11-25T12:00:00"}}, "rules.1.wait: .* time zone"),
        ({**DONE, "reflect": {**DONE["reflect"], "met": [{**MET, "evidence": "all"}]}}, "rules.1.reflect: met.0: evid"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, rule: dict[str, Any], told: str) -> None:
    found = reviewed(tmp_path, FRAME, rule)
    assert any(re.search(told, flaw) for flaw in found.flaws), found.flaws
    assert found.told().startswith(f"✗ {tmp_path}")


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([FRAME, PLAN], "no rule of phase reflect"),
        ([FRAME, PLAN, DONE, {**PLAN, "when": {"steps": 2}}], "rules.3 is never used: rules.1 answers every plan"),
        ([FRAME, {**PLAN, "plan": {"action": {**ACTION, "arguments": {"m": "$gaol"}}}}, DONE], "rules.1: $gaol stands"),
    ],
)
def test_what_is_left_open_is_told_and_keeps_nobody(tmp_path: Path, rules: list[dict[str, Any]], told: str) -> None:
    found = reviewed(tmp_path, *rules)
    assert found.flaws == ()
    assert any(told in advice for advice in found.advice), found.advice


def test_the_command_ends_with_78_where_a_script_is_wrong(tmp_path: Path) -> None:
    reviewed(tmp_path, FRAME, PLAN, DONE)
    good = agentic_here("script", "check", tmp_path / "script.yaml")
    assert (good.code, good.out) == (0, f"✓ {tmp_path}/script.yaml: one, 3 rules (1 frame, 1 plan, 1 reflect)\n")
    reviewed(tmp_path, {"phase": "plan"})
    bad = agentic_here("script", "check", tmp_path / "script.yaml", "--json")
    assert (bad.code, "exactly one of" in bad.document[0]["flaws"][0]) == (78, True)
