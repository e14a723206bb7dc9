"""The commands on runs load neither of the services nor their libraries."""

import subprocess
import sys

import pytest

from tests.cli.calling import ROOT, clean

SERVERS = {
    *("fastapi", "uvicorn", "uvloop", "nats", "anthropic", "openai", "aiosqlite", "asyncio"),
    *("agent_service.app", "agent_service.settings", "agent_service.core.decide"),
}
PROBE = """
import sys
from agent_service.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("show", "--url", "http://127.0.0.1:1", "run_1"), ("run", "--watch", "x")],
    ids=lambda arguments: arguments[0],
)
def test_a_client_loads_no_server(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        env=clean({"AGENTIC_URL": "http://127.0.0.1:1"}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "agent_service.cli.main" in loaded
    assert loaded & SERVERS == set()


def test_version_and_help_print_and_end_well() -> None:
    for arguments, part in ((["--version"], "agentic "), ([], "Usage: agentic"), (["run", "--help"], "--watch")):
        done = subprocess.run(
            [sys.executable, "-m", "agent_service", *arguments],
            env=clean({}),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert part in done.stdout
        assert done.stderr == ""
