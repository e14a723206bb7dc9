"""Checks of the executors: the tools they offer, and the gateway's own findings."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from agent_service.bus.gateway import statuses
from agent_service.bus.skills import NatsSkills, unoffered
from agent_service.cli.doctor.machine import BACKUP_FIRST
from agent_service.history.text import ok, warning, wrong
from agent_service.settings import AgentSettings
from agent_service.trust.oversight import undeclared
from groundwork.nats.link import NatsLink
from groundwork.service.config_file import file_section
from groundwork.service.errors import Failure, TryAgain
from schemas import subjects
from schemas.catalog import UNNAMED, ToolOffer
from schemas.status import Finding, counted

SECTION = "gateway section"
STATUS_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 30.0
"""The gateway asks Ductile before it answers."""
COMMAND = (sys.executable, "-P", "-m", "ductile_gateway", "check", "--settings-only", "--config")
CORRECT = "correct what the executor named there offers, or rename its tool"
START = "start `ductile-gateway serve`; `ductile-gateway check` lists its tools"


async def gateway(link: NatsLink, settings: AgentSettings) -> AsyncIterator[Finding]:
    try:
        reports = await statuses(link, within_s=STATUS_TIMEOUT_S)
    except Failure:
        reports = ()
        yield warning("gateway", "no gateway reports its status", remedy=START)
    except ValidationError:
        yield wrong("gateway", "what answers is not a gateway", remedy="run both services in the same version")
        return
    for status in reports:
        for one in status.findings:
            yield one.model_copy(update={"text": f"{one.text} ({status.gateway})"}) if status.gateway else one
    if silent := max((status.gateways for status in reports), default=0) - len(reports):
        yield warning("gateway", f"{silent} more do not report their status", remedy="see their logs")
    every = settings.tool_rules.model_copy(update={"only": None})
    skills = NatsSkills(link, settings.model_copy(update={"tools": every}))
    try:
        catalog = await skills.catalog()
    except TryAgain as nothing:
        yield wrong("tools", str(nothing), remedy=CORRECT if skills.problems else "see above" if reports else START)
        return
    for finding in _tools(settings, catalog.tools, skills.problems):
        yield finding


def _tools(settings: AgentSettings, catalog: Sequence[ToolOffer], problems: Sequence[str]) -> Iterator[Finding]:
    allowed, own = settings.tool_rules.only, {tool.name for tool in settings.own_tools()}
    offered = [tool for tool in catalog if allowed is None or tool.name in {*allowed, *own}]
    yield _listed(settings, catalog, offered, problems)
    if not offered:
        return
    if plain := [offer.name for offer in offered if not offer.echoes_capability]:
        echo = "have their executors echo `capability`, as docs/BUS.md says"
        remedy = f"{echo}; then set agent.tools.require_capability: true"
        yield warning(
            "results", f"each login that may publish results can answer for {', '.join(plain)}", remedy=remedy
        )
    else:
        yield ok("results", "each has to prove which request it answers")
    if silent := ", ".join(undeclared(map(settings.oversight().over, offered))):
        text = f"results of {silent} count as untrusted: their executor does not declare them"
        remedy = f"for tools that bring your own data, such as sensors, set agent.trusted: [{silent}]"
        yield warning("trust", text, remedy=remedy)


def _listed(
    settings: AgentSettings, catalog: Sequence[ToolOffer], offered: Sequence[ToolOffer], problems: Sequence[str]
) -> Finding:
    allowed = settings.tool_rules.only
    if problems:
        return warning("tools", "; ".join(problems), remedy=CORRECT)
    if unknown := unoffered(catalog, allowed, settings.oversight()):
        text = f"{'; '.join(unknown)}, which no executor offers"
        return warning("tools", text, remedy="correct that setting, or the executor's tools")
    if not offered:
        return wrong("tools", "there is no tool that a run may use", remedy=START)
    return ok("tools", f"{counted(len(offered), 'tools')}: {', '.join(map(_offer, offered))}")


def _offer(tool: ToolOffer) -> str:
    tiers = sorted({command.tier for command in tool.commands})
    whose = "" if tool.executor in (UNNAMED, subjects.SERVICE_GATEWAY) else f" of {tool.executor}"
    return f"{tool.name}{whose} ({'/'.join(tiers)})"


async def gateway_section(config: Path | None) -> AsyncIterator[Finding]:
    """Checks the gateway's section of the configuration, if it has one. Raises Misconfigured for an unreadable file."""
    if "gateway" not in file_section(config):
        return
    process = await asyncio.create_subprocess_exec(*COMMAND, str(config), stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        coming, stderr = await asyncio.wait_for(process.communicate(), READ_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        yield warning(SECTION, f"it was not read within {READ_TIMEOUT_S:g} s", remedy="run `ductile-gateway check`")
        return
    if process.returncode:
        problem = stderr.decode("utf-8", "replace").strip().removeprefix("ductile-gateway: ")
        yield wrong(SECTION, problem, remedy="docs/CONFIGURATION.md lists every setting")
        return
    yield ok(SECTION, "can be used")
    if coming:
        yield warning("ledger", coming.decode("utf-8", "replace").strip(), remedy=BACKUP_FIRST)
