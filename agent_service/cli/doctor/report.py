"""`agentic doctor`: runs all checks and prints them in order."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import typer
import yaml
from rich.text import Text

from agent_service import settings
from agent_service.cli import locate, output
from agent_service.cli.doctor import machine
from agent_service.cli.doctor.bus import bus
from agent_service.cli.options import AS_JSON, CONFIG_NEARBY
from agent_service.history.text import ok, one_line, wrong
from groundwork.service.commands import examples, flag
from groundwork.service.config_file import WrongSettings
from groundwork.service.errors import Exit, Misconfigured
from groundwork.service.secret import without_login
from schemas.status import Finding

INDENT = 18
"""Columns of a finding before its text."""
SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "wrong": ("✗", "red")}

Check = AsyncIterator[Finding] | Coroutine[Any, Any, Finding]

commands = typer.Typer()


@commands.command(
    epilog=examples("agentic doctor", "agentic doctor --config agentic.yaml", "agentic doctor --settings")
)
def doctor(
    config: Path | None = CONFIG_NEARBY,
    settings: bool = flag("Print the settings in force, without secrets.", "--settings"),
    as_json: bool = AS_JSON,
) -> None:
    """Exit code 1 if something is wrong. It changes nothing."""
    if settings:
        output.show(*settings_in_force(config), as_json=as_json)
    else:
        raise typer.Exit(output.run_async(report(config, as_json=as_json)))


async def report(config: Path | None, *, as_json: bool) -> Exit:
    found, status = list[Finding](), output.console(stderr=True).status("")

    def on_wait(what: str) -> None:
        if status.console.is_interactive and not as_json:
            status.update(f"waiting for {what}")
            status.start()

    async for check in run_checks(config, on_wait):
        found.append(check)
        status.stop()
        if not as_json:
            output.draw_line(_check_line(check), INDENT)
    failed = any(check.mark == "wrong" for check in found)
    if as_json:
        output.print_json({"ok": not failed, "checks": [check.model_dump() for check in found]})
    return Exit.FAILED if failed else Exit.OK


async def run_checks(config: Path | None, on_wait: Callable[[str], None] = lambda _: None) -> AsyncIterator[Finding]:
    """Runs all checks at the same time and yields their findings in order. `on_wait` gets the next name."""
    file = locate.reader_config(config)
    try:
        loaded = settings.load(file)
    except Misconfigured as error:
        for problem in error.problems if isinstance(error, WrongSettings) else (str(error),):
            yield wrong("configuration", problem, remedy="docs/CONFIGURATION.md lists every setting")
        return
    yield ok("configuration", str(file or "no file: the defaults and the environment"))
    checks: dict[str, Check] = {
        "this machine": machine.machine_checks(loaded, file),
        "the model": machine.model(loaded.model),
        "the gateway, which reads its section": machine.gateway_section(file),
        "NATS": bus(loaded),
        "the agent": machine.api(loaded.http, None if loaded.shared else loaded.store),
    }

    async def findings_of(check: Check) -> list[Finding]:
        return [await check] if isinstance(check, Coroutine) else [finding async for finding in check]

    tasks = {name: asyncio.create_task(findings_of(check)) for name, check in checks.items()}
    for name, findings in tasks.items():
        on_wait(name)
        for finding in await findings:
            yield finding


def settings_in_force(named: Path | None) -> tuple[dict[str, Any], str]:
    """Returns the settings in force without secrets, as JSON and as YAML. Raises Misconfigured."""
    loaded = settings.load(locate.reader_config(named))
    shown = loaded.model_dump(mode="json")
    shown["nats"]["urls"] = list(map(without_login, loaded.nats.urls))
    for place, name in (("model", "base_url"), ("model", "proxy"), ("telemetry", "endpoint"), ("telemetry", "proxy")):
        shown[place][name] = shown[place][name] and without_login(shown[place][name])
    for token in shown["http"]["tokens"]:
        token["scopes"] = sorted(token["scopes"])
    whole = {settings.SECTION: shown}
    return whole, yaml.safe_dump(whole, sort_keys=False, allow_unicode=True).rstrip()


def _check_line(check: Finding) -> Text:
    sign, colour = SIGNS[check.mark]
    line = Text.assemble((f"{sign} ", colour), (f"{check.name:<15} ", "bold"), one_line(check.text, 1000))
    if check.remedy:
        line.append(f" → {check.remedy}", style=colour)
    return line
