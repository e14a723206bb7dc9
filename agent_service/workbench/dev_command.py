"""`agentic dev`: the whole stack in one terminal, with one line per event from the logs of both services."""

import asyncio
import json
import os
import shlex
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.panel import Panel
from rich.text import Text

from agent_service import settings
from agent_service.cli import output
from agent_service.cli.options import invocation
from agent_service.cli.whereabouts import HERE
from agent_service.core.phases import Phase
from agent_service.history.log_line import FOR_MACHINES
from agent_service.models.scripted_model import read_script
from agent_service.settings import KEYS
from agent_service.workbench.dev import LOOK_S, DevOptions, DevStack, check_that_both_can_start, stack
from groundwork.service import json_log
from groundwork.service.errors import Misconfigured
from groundwork.service.exits import ClosedPipe, Exit
from groundwork.service.invisible import visible
from groundwork.service.serving import cancelled_by_signals

LOOK_AT_LOGS_S = 0.2
ENDED = ("done", "escalated", "failed", "cancelled")
TOLD = frozenset({"WakeAccepted", "ToolReturned", "other tools are on offer"})
"""Events and messages that are shown, besides ends of runs and warnings."""
ASIDE = FOR_MACHINES | {"state_transition", "step", "tool", "call", "attempt", "job_id", "exit_code"}


def shown(written: str) -> Text | None:
    """The line of a service's log for people; None for one that is not shown, or is none of ours."""
    try:
        fields = json.loads(written)
        is_notable = fields["level"] != "INFO"
        is_end = str(fields.get("state_transition")).endswith(ENDED)
        if not is_notable and not is_end and TOLD.isdisjoint((fields.get("event"), fields["msg"])):
            return None
        return Text(visible(json_log.as_text(fields, aside=ASIDE)), style="yellow" if is_notable else "")
    except (ValueError, TypeError, KeyError):  # what a library or the system wrote there
        return None


async def tell_lines(logs: Mapping[Path, int], tell: Callable[[Text], None]) -> None:
    places = dict(logs)
    while True:
        for log, place in places.items():
            for written in _added(log, place):
                places[log] += len(written)
                if line := shown(written.decode(errors="replace")):
                    tell(line)
        await asyncio.sleep(LOOK_AT_LOGS_S)


def _added(log: Path, place: int) -> list[bytes]:
    with log.open("rb") as file:
        file.seek(place)
        return [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]


async def run_dev(options: DevOptions, *, as_json: bool) -> Exit:
    json_log.set_up("WARNING", "json" if as_json else "text", redact=tuple)
    _check_free(options.http_port)
    if options.script:
        read_script(options.script)
    console = output.console(stderr=True)
    try:
        with cancelled_by_signals(lambda: console.print("stopping", style="dim")):
            starting = console.status("starting NATS, the gateway and the agent")
            starting.start()
            try:
                async with stack(options) as made:
                    starting.stop()
                    _announce(made, as_json)
                    await until_stopped(made, as_json)
            finally:
                starting.stop()
    except asyncio.CancelledError:
        return Exit.OK
    return Exit.OK


async def until_stopped(made: DevStack, as_json: bool) -> None:
    """Raises Misconfigured once a service cannot start, which may take a while to show."""
    telling = asyncio.ensure_future(_tell(made, as_json))
    try:
        while True:
            check_that_both_can_start(made)
            await asyncio.sleep(LOOK_S)
    finally:
        telling.cancel()


async def _tell(made: DevStack, as_json: bool) -> None:
    if not as_json:
        with suppress(ClosedPipe):
            logs = {service.log_file: service.log_begins for service in (made.agent, made.gateway)}
            await tell_lines(logs, lambda line: output.draw(line, wrap=False))


def model_here(script: Path | None, environ: Mapping[str, str]) -> dict[str, Any]:
    if script is None and environ.get(KEYS["anthropic"]):
        return {"model": {"provider": "anthropic"}}
    return {}


def _check_free(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        what = f"port {port} of 127.0.0.1 cannot be had ({os.strerror(error.errno or 0)})"
        raise Misconfigured(f"{what}: stop what listens there, or choose another with --http-port") from error


def _announce(made: DevStack, as_json: bool) -> None:
    if as_json:
        output.document(_facts(made))
    else:
        output.draw(_banner(made))
        output.draw(_to_try(made), wrap=False)  # every line can be copied as a whole, however long


def _facts(made: DevStack) -> dict[str, Any]:
    folder = made.options.folder
    return {
        "url": made.url,
        "nats": made.nats.url,
        "config": str(made.config),
        "workspaces": str(made.workspaces),
        "logs": str(folder / "logs"),
        "pids": {"agent": made.agent.pid, "gateway": made.gateway.pid},
    }


def _who_decides(made: DevStack) -> str:
    model = settings.load(made.config).model
    if model.provider == "scripted":
        hint = "" if made.options.taken.names_a_model() else "; set ANTHROPIC_API_KEY for Claude"
        return f"scripted: it follows a script and does not think{hint}"
    return f"{model.of(Phase.PLAN).model} ({model.provider}); its calls are charged to your key"


def _banner(made: DevStack) -> Panel:
    facts, taken = _facts(made), _of_file(made)
    lines = Text.assemble(
        ("page           ", "bold"), f"{made.url}  (HTTP API: {made.url}/docs)\n",
        ("NATS           ", "bold"), f"{made.nats.address}, with the login in {made.login}\n",
        ("model          ", "bold"), f"{_who_decides(made)}\n",
        ("workspaces     ", "bold"), f"{facts['workspaces']}\n",
        ("logs           ", "bold"), f"{facts['logs']}\n",
        ("configuration  ", "bold"), f"{facts['config']}{taken}\n\n",
        (f"kill -9 {facts['pids']['agent']} kills the agent: it is started again, and its runs go on. ", "dim"),
        ("Ctrl-C stops everything.", "dim"),
    )  # fmt: skip
    return Panel(lines, title="agentic dev", title_align="left", expand=False)


def _of_file(made: DevStack) -> str:
    taken = made.options.taken
    if taken.file is None:
        return ""
    left = f", but for {', '.join(taken.left)}" if taken.left else ""
    return f"\n               made of {taken.file}{left}"


def _to_try(made: DevStack) -> Text:
    agentic = invocation()
    at = "" if made.url == HERE else f"--url {made.url} "
    return Text.assemble(
        ("in another terminal\n", "bold"),
        f"  {agentic} run {at}--watch 'show me how this works'\n",
        f"  {agentic} doctor --config {shlex.quote(str(made.config))}\n",
        f"  nats --server \"$(cat {shlex.quote(os.path.relpath(made.login))})\" sub 'agentic.>' 'agent.>'",
    )
