"""`agentic dev --tools`: a tool that is made while it runs is used by a run, and one that breaks is told."""

import json
from pathlib import Path

from ductile_gateway.authoring.making import Language, make
from tests.cli.calling import agentic_here, started
from tests.kit.waiting import wait_until


def test_a_tool_that_is_made_while_dev_runs_is_used_by_a_run_within_seconds(tmp_path: Path) -> None:
    tools, elsewhere, folder = tmp_path / "tools", tmp_path / "elsewhere", tmp_path / ".agentic"
    tools.mkdir()
    script = make("later", Language.BASH, elsewhere) / "script.yaml"
    asked = ("dev", "--json", "--dir", folder, "--http-port", "0", "--tools", tools, "--script", script)
    with started(*asked) as process:
        assert process.stdout
        url = json.loads(process.stdout.readline())["url"]
        make("later", Language.BASH, tools)

        wait_until(lambda: agentic_here("run", "two words", AGENTIC_URL=url).code == 0)
        assert "2 words, the longest is words" in agentic_here("show", "last", AGENTIC_URL=url).out
        (tools / "later" / "run.sh").chmod(0o644)
        log = folder / "logs" / "gateway.log"
        wait_until(lambda: "chmod 755" in log.read_text())
