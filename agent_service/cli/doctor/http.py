"""Checks of the HTTP API: who may call it, and whether an agent answers there."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2

from agent_service.api.access import Access
from agent_service.bus.room import CANNOT_WRITE, RESTART
from agent_service.caller_settings import HttpSettings
from agent_service.telling.findings import ok, warning, wrong
from groundwork.service.address import called
from groundwork.service.config_file import secrets_in
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import equal_ones
from groundwork.service.store_id import known_id
from schemas.gateway_status import Finding

ANSWER_WITHIN_S = 5.0


def tokens(http: HttpSettings) -> Finding:
    try:
        Access(http)
    except Misconfigured as error:
        return wrong("tokens", str(error), remedy="correct agent.http")
    if not http.tokens:
        return ok("tokens", f"none: {http.host} is this machine's own, everybody on it may call")
    names = ", ".join(f"{token.name} ({'/'.join(sorted(token.scopes))})" for token in http.tokens)
    return ok("tokens", names)


def secrets(file: Path | None) -> Iterator[Finding]:
    """What opens two doors, as far as one file tells: whoever learns one secret has the other."""
    if twins := equal_ones(secrets_in(file, os.environ) if file else {}):
        yield warning("secrets", "; ".join(twins), remedy="give each its own, such as from `openssl rand -hex 24`")


async def api(http: HttpSettings, store: Path | None) -> Finding:
    """Whether an agent answers, is the one with `store`, and is ready. One of several that share a store has none."""
    where = f"http://{called(http.host)}:{http.port}"
    if http.port == 0:
        return warning("http", "the API takes a free port at each start", remedy="set agent.http.port to find it again")
    try:
        async with httpx2.AsyncClient(base_url=where, trust_env=False, timeout=ANSWER_WITHIN_S) as client:
            answer = await client.get("/readyz")
            said = answer.json()
            checks = said["checks"]
    except httpx2.TransportError:
        return warning("http", f"no agent answers at {where}", remedy="start `agentic serve`")
    except (ValueError, KeyError, TypeError):
        remedy = "set agent.http.port to a port of its own"
        return wrong("http", f"what answers at {where} is no agent", remedy=remedy)
    if store and said.get("store", own := _id_of(store)) != own:
        text = f"the agent at {where} has another store than {store}: it is not the one that is configured here"
        return wrong("http", text, remedy="set agent.http.port to a port of its own, or stop that one")
    troubles = [f"{name}: {trouble}" for name, trouble in checks.items() if trouble != "ok"]
    if {name for name, trouble in checks.items() if trouble != "ok"} == {"halt"}:
        return wrong("http", f"the agent at {where}: {checks['halt']}", remedy="`agentic go-on` lets everything go on")
    if troubles:
        remedy = RESTART if CANNOT_WRITE in checks.get("room", "") else "see its log"
        return wrong("http", f"the agent at {where} is not ready: {'; '.join(troubles)}", remedy=remedy)
    return ok("http", f"the agent at {where} is ready")


def _id_of(store: Path) -> str:
    """Empty where there is none, or where it cannot be read, which another check tells."""
    with suppress(OSError):
        return known_id(store)
    return ""
