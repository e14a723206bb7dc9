"""Checks of the executors: the tools they tell, and what the gateway finds of itself and of the Ductile behind it."""

from collections.abc import AsyncIterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from agent_service.bus.argument_schemas import schema_flaw
from agent_service.bus.skills import NatsSkills
from agent_service.cli.doctor.check import Check, ok, warning, wrong
from agent_service.errors import TryAgain
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure
from schemas import subjects
from schemas.catalog import UNNAMED, ToolOffer
from schemas.gateway_status import Finding, GatewayStatus

LOOKS_WITHIN_S = 5.0
"""The gateway asks Ductile in its turn."""

CORRECT = "correct what the executor named there offers, or rename its tool"
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
    skills = NatsSkills(link, allow=None, schema_flaw=schema_flaw)
    try:
        catalog = await skills.catalog()
    except TryAgain as nothing:
        return wrong("tools", str(nothing), remedy=CORRECT if skills.problems else silent)
    names = {tool.name for tool in catalog.tools}
    if skills.problems:
        return warning("tools", "; ".join(skills.problems), remedy=CORRECT)
    unknown = [name for name in allowed or () if name not in names]
    if unknown:
        text = f"agent.tools names {', '.join(unknown)}, which nobody offers"
        return warning("tools", text, remedy="correct agent.tools, or the executor's tools")
    offered = [tool for tool in catalog.tools if allowed is None or tool.name in allowed]
    if not offered:
        return wrong("tools", "there is no tool that a run may use", remedy=START)
    return ok("tools", f"{len(offered)} tools: {', '.join(map(_offer, offered))}")


async def _ask(link: NatsLink, subject: str, model: type[Told], *, within_s: float) -> Told | None:
    """The answer; None when nobody gives one. Raises ValidationError."""
    try:
        return model.model_validate_json(await link.request(subject, b"", timeout_s=within_s))
    except Failure:
        return None


def _check(finding: Finding) -> Check:
    return Check(name=finding.name, mark=finding.mark, text=finding.text, remedy=finding.remedy)


def _offer(tool: ToolOffer) -> str:
    tiers = sorted({command.tier for command in tool.commands})
    whose = "" if tool.executor in (UNNAMED, subjects.SERVICE_GATEWAY) else f" of {tool.executor}"
    return f"{tool.name}{whose} ({'/'.join(tiers)})"
