"""Imports: commands on runs load no service, and a service loads first what its runs and calls need."""

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


AFTER_THE_CALLS = {"fastapi", "starlette", "uvicorn", "jinja2", "typer", "rich", "ductile_gateway.webhooks.inbound"}
COMMAND = "import sys; from agent_service.cli.main import main; main(sys.argv[1:])"
SERVE = "import sys; from agent_service.__main__ import PROGRAM, program; program.command_of(*PROGRAM, sys.argv[1:])"
LOADED: dict[str, tuple[str, str, set[str]]] = {
    "--help": (COMMAND, "agent_service.cli.main", SERVERS | {at.module for at in Agentic.table.values()}),
    "run --watch x": (COMMAND, "agent_service.cli.main", SERVERS),
    "serve --config agentic.yaml": (SERVE, "agent_service.app", AFTER_THE_RUNS),
    "": ("import ductile_gateway.app", "ductile_gateway.calls.relay", AFTER_THE_CALLS),
}
"""By the arguments of a program: its code, a module that it loads, and those that it has not loaded at its end."""


@pytest.mark.parametrize("arguments", LOADED)
def test_a_client_loads_no_server_and_a_service_not_yet_what_goes_on_without_it(arguments: str) -> None:
    code, needed, unneeded = LOADED[arguments]
    probe = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {code}"
    done = subprocess.run(
        [sys.executable, "-c", probe, *arguments.split()],
        env=clean({"AGENTIC_URL": "http://127.0.0.1:1"}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    loaded = set(done.stderr.splitlines()[-1].split())
    assert (needed in loaded, loaded & unneeded) == (True, set()), done.stderr


def test_each_command_that_is_listed_is_there_and_begins_its_own_help_as_it_is_listed() -> None:
    group = typer.main.get_group(app)
    context = typer.Context(group)
    listed = {name: at.about for name, at in Agentic.table.items()}
    there = {name: group.resolve_command(context, name.split()[-1:])[1] for name in listed}
    assert {name: ((command and command.help) or "").split("\n\n")[0] for name, command in there.items()} == listed
