"""Checks of the gateway: the tools that it tells, and what it finds of itself and of the Ductile behind it."""

from collections.abc import AsyncIterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from agent_service.cli.doctor.check import Check, ok, warning, wrong
from groundwork.nats_errors import BusError
from groundwork.nats_link import NatsLink
from schemas import subjects
from schemas.catalog import Catalog, ToolOffer
from schemas.gateway_status import Finding, GatewayStatus

ANSWER_WITHIN_S = 2.0
LOOKS_WITHIN_S = 5.0
"""The gateway asks Ductile in its turn."""

START = "start `ductile-gateway serve`; `ductile-gateway check` lists its tools"

Told = TypeVar("Told", bound=BaseModel)


async def gateway(link: NatsLink, allowed: tuple[str, ...] | None) -> AsyncIterator[Check]:
    """What it says over the bus. `allowed`: the tools of `agent.tools`."""
    try:
        status = await _ask(link, subjects.STATUS, GatewayStatus, within_s=LOOKS_WITHIN_S)
    except ValidationError:
        yield wrong("gateway", "what answers is no gateway", remedy="run both services in the same version")
        return
    for finding in status.findings if status else ():
        yield _check(finding)
    if status is None:
        yield warning("gateway", "no gateway says how it is", remedy=START)
    yield await _tools(link, allowed, silent="see above" if status else START)


async def _tools(link: NatsLink, allowed: tuple[str, ...] | None, *, silent: str) -> Check:
    """`silent`: what to do about a gateway that tells no tools."""
    try:
        catalog = await _ask(link, subjects.CATALOG, Catalog, within_s=ANSWER_WITHIN_S)
    except ValidationError:
        return wrong("tools", "the gateway's answer is no catalog", remedy="run both services in the same version")
    if catalog is None:
        return wrong("tools", "no gateway tells its tools", remedy=silent)
    names = {tool.name for tool in catalog.tools}
    unknown = [name for name in allowed or () if name not in names]
    if unknown:
        text = f"agent.tools names {', '.join(unknown)}, which no gateway offers"
        return warning("tools", text, remedy="correct agent.tools, or the gateway's tools")
    offered = [tool for tool in catalog.tools if allowed is None or tool.name in allowed]
    if not offered:
        return wrong("tools", "there is no tool that a run may use", remedy=START)
    return ok("tools", f"{len(offered)} tools: {', '.join(map(_offer, offered))}")


async def _ask(link: NatsLink, subject: str, model: type[Told], *, within_s: float) -> Told | None:
    """The answer; None when nobody gives one. Raises ValidationError."""
    try:
        return model.model_validate_json(await link.request(subject, b"", timeout_s=within_s))
    except BusError:
        return None


def _check(finding: Finding) -> Check:
    return Check(name=finding.name, mark=finding.mark, text=finding.text, remedy=finding.remedy)


def _offer(tool: ToolOffer) -> str:
    tiers = sorted({command.tier for command in tool.commands})
    return f"{tool.name} ({'/'.join(tiers)})"
