"""The version of the prompts: the same wherever the files are the same, and another when a file is."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_service.models.prompts.prompt import version

ROOT = Path(__file__).parents[2]
TEMPLATES = "agent_service/models/prompts/templates"


def version_in(tree: Path) -> str:
    """What a process of its own says, which runs the program of `tree`."""
    told = "from agent_service.models.prompts.prompt import version; print(version())"
    ran = subprocess.run([sys.executable, "-c", told], cwd=tree, capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout.strip()


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Copies of this program, by name."""

    def copy(name: str) -> Path:
        tree = tmp_path_factory.mktemp(name)
        for package in ("agent_service", "schemas"):
            shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__", "static"))
        return tree

    return copy


def test_the_same_files_have_the_same_version_in_every_process(copied: Callable[[str], Path]) -> None:
    assert version_in(copied("same")) == version_in(ROOT) == version()


@pytest.mark.parametrize("name", ["rules.md", "standing.md"])
def test_a_changed_word_is_another_version(copied: Callable[[str], Path], name: str) -> None:
    tree = copied(name)
    file = tree / TEMPLATES / name
    file.write_text(file.read_text().replace("is", "was", 1))
    assert version_in(tree) != version()


def test_a_text_in_another_file_is_another_version(copied: Callable[[str], Path]) -> None:
    tree = copied("moved")
    (tree / TEMPLATES / "plan.md").rename(tree / TEMPLATES / "planned.md")
    assert version_in(tree) != version()
