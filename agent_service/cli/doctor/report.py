"""`agentic doctor`: runs all checks and prints them in order. The checks of this machine are here: folders, database,
HTTP API, the gateway's section of the configuration, and the model (without a paid call)."""

import asyncio
import os
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import httpx2
import typer
import yaml
from rich.text import Text

from agent_service import settings
from agent_service.bus.health import CANNOT_WRITE, RESTART, disk_trouble
from agent_service.cli import output
from agent_service.cli.client import reader_config, url_host
from agent_service.cli.doctor.bus import bus, id_of
from agent_service.cli.options import AS_JSON, CONFIG_NEARBY
from agent_service.errors import ModelError
from agent_service.history.text import ok, one_line, warning, wrong
from agent_service.models.scripted_model import read_script
from agent_service.models.settings import ModelSettings, open_model
from agent_service.settings import AgentSettings, ApiSettings, secrets_in_file
from agent_service.store.database import FILE, MIGRATIONS, open_for_reading
from agent_service.store.runs import RunStore
from groundwork.service.commands import examples, flag
from groundwork.service.config_file import WrongSettings, file_section
from groundwork.service.errors import Exit, Fatal, Misconfigured, TryAgain
from groundwork.service.program import own_command
from groundwork.service.secret import without_login
from groundwork.sqlite.file import pending_upgrade
from groundwork.sqlite.reserve import FOR_OPENING
from schemas.status import Finding, counted

API_TIMEOUT_S, MODEL_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 15.0, 30.0
BACKUP_FIRST = (
    "the way back is a backup that is made before, with the version that wrote it (`agentic backup FILE`), or a copy "
    "of both stores while nothing runs; then start the services"
)
OWN_PORT = "set agent.http.port to a port of its own"
MODEL_AWAY = "runs wait until it answers; if it stays away, correct agent.model.base_url or agent.model.proxy"
CORRECT_MODEL = "correct the section agent.model of the configuration"
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
    file = reader_config(config)
    try:
        loaded = settings.load(file)
    except Misconfigured as error:
        for problem in error.problems if isinstance(error, WrongSettings) else (str(error),):
            yield wrong("configuration", problem, remedy="docs/CONFIGURATION.md lists every setting")
        return
    yield ok("configuration", str(file or "no file: the defaults and the environment"))
    checks: dict[str, Check] = {
        "this machine": machine_checks(loaded, file),
        "the model": model(loaded.model),
        "the gateway, which reads its section": gateway_section(file),
        "NATS": bus(loaded),
        "the agent": api(loaded.http, None if loaded.shared else loaded.store),
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
    loaded = settings.load(reader_config(named))
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


# This machine


def equal_secrets(secrets: Mapping[str, str]) -> tuple[str, ...]:
    """One line for each pair of equal secrets, by their places: one of them reveals the other. A Ductile may have one
    secret for all relays, in both directions."""
    first: dict[str, str] = {}
    pairs = [(first.setdefault(secret, place), place) for place, secret in secrets.items()]
    doors = (pair for pair in pairs if pair[0] != pair[1] and not all(map(_RELAYED.match, pair)))
    return tuple(f"{one} and {other} are the same secret" for one, other in doors)


_RELAYED = re.compile(r"gateway\.(ingress\.peers|outbound\.relay|ductiles?\.(.+\.)?relay)")


async def machine_checks(settings: AgentSettings, file: Path | None) -> AsyncIterator[Finding]:
    if twins := equal_secrets(secrets_in_file(file, os.environ) if file else {}):
        yield warning("secrets", "; ".join(twins), remedy="give each its own, such as from `openssl rand -hex 24`")
    if settings.shared:
        yield folder("cache", settings.cache)
    else:
        yield folder("store", settings.store)
        yield await database(settings)
    yield folder("workspaces", settings.workspaces)
    yield tokens(settings.http)


def folder(name: str, path: Path) -> Finding:
    try:
        existing = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
        fault = "" if os.access(existing, os.W_OK | os.X_OK) else "cannot be written"
        fault = fault if existing.is_dir() else "is not a folder"
    except OSError as error:
        existing, fault = path, f"cannot be used: {error.strerror}"
    if fault:
        return wrong(name, f"{existing} {fault}", remedy=f"give this user the folder, or set agent.{name} to another")
    free, made = shutil.disk_usage(existing).free, "" if existing == path.absolute() else " (will be made)"
    text, remedy = f"{path}{made}, {free >> 20:,} MiB free", "free space: without it nothing can be stored"
    if free < FOR_OPENING:
        return wrong(name, text, remedy=remedy)
    return warning(name, text, remedy=remedy) if any(disk_trouble(existing)) else ok(name, text)


async def database(settings: AgentSettings) -> Finding:
    path = settings.store / FILE
    try:
        if not path.exists():
            return ok("database", "none yet: the agent makes it when it starts")
        if coming := pending_upgrade(settings.store / FILE, MIGRATIONS):
            return warning("database", coming, remedy=BACKUP_FIRST)
        async with open_for_reading(settings.store) as opened:
            runs = sum((await RunStore(opened).counts()).values())
    except (Fatal, TryAgain, OSError) as error:
        return wrong("database", str(error), remedy="mend that, then run doctor again")
    return ok("database", f"{path}, {counted(runs, 'runs')}, {path.stat().st_size / (1 << 20):.1f} MiB")


def tokens(http: ApiSettings) -> Finding:
    try:
        http.bearers()
    except Misconfigured as error:
        return wrong("tokens", str(error), remedy="correct agent.http")
    named = (f"{token.name} ({'/'.join(sorted(token.scopes))})" for token in http.tokens)
    return ok("tokens", ", ".join(named) or f"none: everyone on this machine may call, at {http.host}")


async def api(http: ApiSettings, store: Path | None) -> Finding:
    """`store` is None for an agent that shares its store with others."""
    where = f"http://{url_host(http.host)}:{http.port}"
    if http.port == 0:
        return warning("http", "the API takes a free port at each start", remedy=OWN_PORT)
    try:
        async with httpx2.AsyncClient(base_url=where, trust_env=False, timeout=API_TIMEOUT_S) as client:
            status = (await client.get("/readyz")).json()
            troubles = {name: str(trouble) for name, trouble in status["checks"].items() if trouble != "ok"}
    except (httpx2.TransportError, httpx2.InvalidURL):
        return warning("http", f"no agent answers at {where}", remedy="start `agentic serve`, or correct agent.http")
    except (httpx2.RequestError, ValueError, KeyError, TypeError, AttributeError):
        return wrong("http", f"what answers at {where} is not an agent", remedy=OWN_PORT)
    if store and status.get("store", own := id_of(store)) != own:
        text = f"the agent at {where} has another store than {store}: it is not the one that is configured here"
        return wrong("http", text, remedy=f"{OWN_PORT}, or stop that one")
    if not troubles:
        return ok("http", f"the agent at {where} is ready")
    remedy = RESTART if CANNOT_WRITE in troubles.get("room", "") else "see its log"
    remedy = "`agentic go-on` lets everything go on" if troubles.keys() == {"halt"} else remedy
    text = "; ".join(f"{name}: {trouble}" for name, trouble in troubles.items())
    return wrong("http", f"the agent at {where} is not ready: {text}", remedy=remedy)


async def model(settings: ModelSettings) -> Finding:
    names = f"{settings.provider}: {', '.join(settings.names())}"
    try:
        if settings.provider == "scripted":
            script = await asyncio.to_thread(read_script, settings.script_file())
            rules = counted(len(script.rules), "rules")
            return ok("model", f"scripted: {script.name}, {rules} (it follows them, and does not think)")
        async with open_model(settings) as provider, asyncio.timeout(MODEL_TIMEOUT_S):
            findings = await provider.check()
    except TimeoutError:
        return warning("model", f"{names}: no answer in {MODEL_TIMEOUT_S:g} s", remedy=MODEL_AWAY)
    except (Misconfigured, ModelError) as error:
        if isinstance(error, ModelError) and error.remedy == "try_again":
            return warning("model", f"{names}: {error}", remedy=MODEL_AWAY)
        return wrong("model", f"{names}: {error}", remedy=CORRECT_MODEL)
    if findings:
        return warning("model", f"{names}: {'; '.join(findings)}", remedy="choose another in agent.model.model")
    return ok("model", f"{names}, which the provider knows")


async def gateway_section(config: Path | None) -> AsyncIterator[Finding]:
    """Checks the gateway's section of the configuration, if it has one. Raises Misconfigured for an unreadable file."""
    if "gateway" not in file_section(config):
        return
    command = own_command("ductile_gateway", "check", "--settings-only", "--config", str(config))
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            coming, stderr = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
        text = f"it was not read within {READ_TIMEOUT_S:g} s"
        yield warning("gateway section", text, remedy="run `ductile-gateway check --settings-only`")
        return
    if process.returncode:
        problem = stderr.decode("utf-8", "replace").strip().removeprefix("ductile-gateway: ")
        yield wrong("gateway section", problem, remedy="docs/CONFIGURATION.md lists every setting")
        return
    yield ok("gateway section", "can be used")
    if coming:
        yield warning("ledger", coming.decode("utf-8", "replace").strip(), remedy=BACKUP_FIRST)
