"""Read-only checks of this machine: folders, database, HTTP API, the gateway's section of the configuration, and the
model (without a paid call)."""

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx2

from agent_service.admission.callers import ApiSettings
from agent_service.bus.capacity import CANNOT_WRITE, RESTART, disk_trouble
from agent_service.errors import ModelError
from agent_service.history.text import ok, warning, wrong
from agent_service.models.scripted_model import read_script
from agent_service.models.settings import ModelSettings, open_model
from agent_service.settings import AgentSettings
from agent_service.store.database import FILE, MIGRATIONS, open_for_reading
from agent_service.store.sqlite import SqliteStore
from groundwork.service.config_file import file_section, secrets_in_file
from groundwork.service.errors import Fatal, Misconfigured, TryAgain
from groundwork.service.program import own_command
from groundwork.service.secret import equal_secrets, url_host
from groundwork.service.store_folder import known_id
from groundwork.sqlite.file import pending_upgrade
from groundwork.sqlite.reserve import FOR_OPENING
from schemas.status import Finding, counted

API_TIMEOUT_S, MODEL_TIMEOUT_S = 5.0, 15.0
BACKUP_FIRST = (
    "the way back is a backup that is made before, with the version that wrote it (`agentic backup FILE`), or a copy "
    "of both stores while nothing runs; then start the services"
)
OWN_PORT = "set agent.http.port to a port of its own"
MODEL_AWAY = "runs wait until it answers; if it stays away, correct agent.model.base_url or agent.model.proxy"
CORRECT_MODEL = "correct the section agent.model of the configuration"


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
    text, remedy = f"{path}{made}, {_size(free)} free", "free space: without it nothing can be stored"
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
            runs = sum((await SqliteStore(opened).counts()).values())
    except (Fatal, TryAgain, OSError) as error:
        return wrong("database", str(error), remedy="mend that, then run doctor again")
    return ok("database", f"{path}, {counted(runs, 'runs')}, {_size(path.stat().st_size)}")


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number / (1 << 20):.1f} MiB"


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


def id_of(store: Path) -> str:
    """Returns "" for an unreadable store; the check of the folder reports that."""
    with suppress(OSError):
        return known_id(store)
    return ""


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
    coming, stderr = await process.communicate()
    if process.returncode:
        problem = stderr.decode("utf-8", "replace").strip().removeprefix("ductile-gateway: ")
        yield wrong("gateway section", problem, remedy="docs/CONFIGURATION.md lists every setting")
        return
    yield ok("gateway section", "can be used")
    if coming:
        yield warning("ledger", coming.decode("utf-8", "replace").strip(), remedy=BACKUP_FIRST)
