"""GitHub runs the actions that were reviewed: each is pinned by its commit, because a tag can move."""

import re
from pathlib import Path

import pytest

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"
USES = re.compile(r"^\s*(?:- )?uses:\s*(.*)$", re.MULTILINE)
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("workflow", sorted(WORKFLOWS.glob("*.y*ml")), ids=lambda path: path.name)
def test_each_action_is_named_by_its_commit_with_its_version_behind(workflow: Path) -> None:
    used = USES.findall(workflow.read_text(encoding="utf-8"))
    assert used
    assert [one for one in used if not PINNED.fullmatch(one)] == []
