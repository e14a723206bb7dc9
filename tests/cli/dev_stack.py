"""An `agentic dev` for the tests of one file."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import Called, agentic, agentic_here, running_with, started

SCRIPT = Path(__file__).parent / "script.yaml"


@dataclass(frozen=True, slots=True)
class Dev:
    """The facts that `agentic dev` printed, and its folder."""

    folder: Path
    facts: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.facts["url"])

    def __call__(self, *arguments: str | Path, **environment: str) -> Called:
        call = agentic if arguments[0] == "dev" else agentic_here
        return call(*arguments, cwd=self.folder.parent, AGENTIC_URL=self.url, **environment)

    def run(self, goal: str, *arguments: str) -> dict[str, Any]:
        view: dict[str, Any] = self("run", "--json", *arguments, goal).document
        return view


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    folder = tmp_path_factory.mktemp("cli") / ".agentic"
    with started("dev", "--json", "--dir", folder, "--http-port", "0", "--script", SCRIPT) as process:
        assert process.stdout
        line = process.stdout.readline()
        assert line, process.communicate()
        yield Dev(folder, json.loads(line))
        process.terminate()
        assert process.wait(20) == 0
    assert running_with(folder) == {}


@pytest.fixture(scope="module")
def done(dev: Dev) -> dict[str, Any]:
    return dev.run("say it back")
