"""Imports: commands on runs load no service, and a service loads first what its runs need."""

import subprocess
import sys

import pytest
import typer

from agent_service.cli.main import Agentic, app
from tests.cli.invoke import ROOT, clean

SERVERS = {
    *("fastapi", "uvicorn", "uvloop", "nats", "anthropic", "openai", "aiosqlite"),
    *("agent_service.app", "agent_service.settings", "agent_service.core.state"),
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
    [("--help",), ("run", "--watch", "x")],
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
    if len(arguments) == 1:
        assert loaded & {at.module for at in Agentic.table.values()} == set()


def test_each_command_that_is_listed_is_there_and_begins_its_own_help_as_it_is_listed() -> None:
    group = typer.main.get_group(app)
    context = typer.Context(group)
    listed = {name: at.about for name, at in Agentic.table.items()}
    there = {name: group.resolve_command(context, name.split()[-1:])[1] for name in listed}
    assert {name: ((command and command.help) or "").split("\n\n")[0] for name, command in there.items()} == listed


AFTER_THE_RUNS = {
    *("fastapi", "starlette", "uvicorn", "httpx2", "typer", "rich", "jinja2", "nats.micro", "anthropic", "openai"),
    *("prometheus_client", "agent_service.api", "agent_service.cluster", "agent_service.store.shared"),
    *(
        "agent_service.cli.main",
        "agent_service.models.scripted_model",
        "agent_service.views.pages",
        "agent_service.views.spans",
    ),
}


def test_an_agent_that_starts_has_not_loaded_what_its_runs_need_not_to_go_on() -> None:
    probe = "import sys; from agent_service.__main__ import PROGRAM, program; "
    probe += "program.command_of(*PROGRAM, sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe, "serve", "--config", "agentic.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "agent_service.app" in loaded
    assert loaded & AFTER_THE_RUNS == set()
