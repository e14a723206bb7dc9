"""Checks of the HTTP API: who may call it, and whether an agent answers there."""

import httpx2

from agent_service.adapters.http_access import Access
from agent_service.cli.doctor.check import Check, ok, warning, wrong
from agent_service.errors import Misconfigured
from agent_service.settings import HttpSettings

ANSWER_WITHIN_S = 5.0


def tokens(http: HttpSettings) -> Check:
    """Whether the API is closed to strangers."""
    try:
        Access(http)
    except Misconfigured as error:
        return wrong("tokens", str(error), remedy="correct agent.http")
    if not http.tokens:
        return ok("tokens", f"none: {http.host} is this machine's own, everybody on it may call")
    names = ", ".join(f"{token.name} ({'/'.join(sorted(token.scopes))})" for token in http.tokens)
    return ok("tokens", names)


async def api(http: HttpSettings) -> Check:
    """Whether an agent answers, and is ready."""
    where = f"http://{_host(http.host)}:{http.port}"
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
    troubles = [f"{name}: {said}" for name, said in checks.items() if said != "ok"]
    if troubles:
        return wrong("http", f"the agent at {where} is not ready: {'; '.join(troubles)}", remedy="see its log")
    return ok("http", f"the agent at {where} is ready")


def _host(host: str) -> str:
    """What to call, where the agent listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared with, not listened on
    return f"[{host}]" if ":" in host else host
