"""Checks of the executors: the tools they offer, what the gateway finds of itself, and what `retrieve` asks."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from agent_service.bus.gateway import statuses
from agent_service.bus.skills import NatsSkills, misspelt, told_misspelt, unknown_names
from agent_service.cli.doctor.machine import BEFORE
from agent_service.history.plain import ok, warning, wrong
from agent_service.settings import AgentSettings, ContinuationSettings
from agent_service.trust.oversight import undeclared
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.strict import NotYaml, parse
from schemas import subjects
from schemas.catalog import UNNAMED, ToolOffer
from schemas.status import Finding, GatewayStatus

RETRIEVAL = "retrieval"
SETTING = "agent.continuations.retrieval_tool"


def retrieval(settings: ContinuationSettings, offered: Sequence[ToolOffer]) -> Finding:
    """`offered`: the tools that runs may use. A missing default tool is no fault."""
    tool, _, wanted = settings.retrieval_tool.partition(".")
    commands = next((offer.commands for offer in offered if offer.name == tool), None)
    if commands is None and "retrieval_tool" not in settings.model_fields_set:
        return ok(RETRIEVAL, f"there is no tool {tool}: a tool that asks for a retrieval gets an error for it")
    found = [one for one in commands or () if (one.name == wanted if wanted else one.tier == "read")]
    if not found:
        text = f"{SETTING} is {settings.retrieval_tool}, and {_lacking(tool, wanted, commands is not None)}"
        return warning(RETRIEVAL, text, remedy="name a tool there that is on offer, or have it offered")
    return ok(RETRIEVAL, f"{tool}.{found[0].name}, profile {settings.continuation_retrieval_profile}")


def _lacking(tool: str, wanted: str, is_there: bool) -> str:
    if not is_there:
        return f"runs have no tool {tool}"
    return f"{tool} has no command {wanted}" if wanted else f"{tool} has no command that only reads"


LOOKS_WITHIN_S = 5.0
"""The gateway asks Ductile in its turn."""
SECTION = "gateway"
NAME = "gateway section"
READS_WITHIN_S = 30.0
COMMAND = (sys.executable, "-m", "ductile_gateway", "check", "--settings-only", "--config")

CORRECT = "correct what the executor named there offers, or rename its tool"
START = "start `ductile-gateway serve`; `ductile-gateway check` lists its tools"


async def gateway(link: NatsLink, settings: AgentSettings) -> AsyncIterator[Finding]:
    try:
        told = await statuses(link, within_s=LOOKS_WITHIN_S)
    except Failure:
        told = ()
    except ValidationError:
        yield wrong("gateway", "what answers is no gateway", remedy="run both services in the same version")
        return
    for finding in (finding for status in told for finding in _named(status)):
        yield finding
    if not told:
        yield warning("gateway", "no gateway says how it is", remedy=START)
    if silent := _number_silent(told):
        yield warning("gateway", f"{silent} more do not say how they are", remedy="see their logs")
    async for finding in _tools(link, settings, silent="see above" if told else START):
        yield finding


def _named(status: GatewayStatus) -> Sequence[Finding]:
    if not status.gateway:
        return status.findings
    return [one.model_copy(update={"text": f"{one.text} ({status.gateway})"}) for one in status.findings]


def _number_silent(told: Sequence[GatewayStatus]) -> int:
    return max((status.gateways for status in told), default=0) - len(told)


async def _tools(link: NatsLink, settings: AgentSettings, *, silent: str) -> AsyncIterator[Finding]:
    rules = settings.tool_rules
    skills = NatsSkills(
        link,
        allow=None,
        own=settings.own_tools(),
        proven=rules.require_capability,
        declared=rules.declared,
    )
    try:
        catalog = await skills.catalog()
    except TryAgain as nothing:
        yield wrong("tools", str(nothing), remedy=CORRECT if skills.problems else silent)
        return
    own = {tool.name for tool in settings.own_tools()}
    allowed = rules.only
    offered = [tool for tool in catalog.tools if allowed is None or tool.name in {*allowed, *own}]
    unknown = unknown_names(catalog.tools, allowed, settings.oversight())
    if near := misspelt(allowed, {tool.name for tool in catalog.tools}):
        yield wrong("tools", told_misspelt(near), remedy="correct agent.tools: the agent does not start like this")
    else:
        yield _listed(offered, skills.problems, unknown)
    if offered:
        yield _proofs(offered)
        if silent_tools := undeclared(map(settings.oversight().over, offered)):
            yield _trust(silent_tools)
        yield retrieval(settings.continuations, offered)


def _listed(offered: Sequence[ToolOffer], problems: Sequence[str], unknown: Sequence[str]) -> Finding:
    if problems:
        return warning("tools", "; ".join(problems), remedy=CORRECT)
    if unknown:
        text = f"{'; '.join(unknown)}, which nobody offers"
        return warning("tools", text, remedy="correct that setting, or the executor's tools")
    if not offered:
        return wrong("tools", "there is no tool that a run may use", remedy=START)
    return ok("tools", f"{len(offered)} tools: {', '.join(map(_offer, offered))}")


def _proofs(offered: Sequence[ToolOffer]) -> Finding:
    plain = [offer for offer in offered if not offer.echoes_capability]
    if not plain:
        return ok("results", "each has to prove which request it answers")
    text = f"whoever may publish results can answer for {', '.join(offer.name for offer in plain)}"
    remedy = (
        "have their executors echo `capability`, as docs/BUS.md says; then set agent.tools.require_capability: true"
    )
    return warning("results", text, remedy=remedy)


def _trust(names: Sequence[str]) -> Finding:
    listed = ", ".join(names)
    text = f"results of {listed} count as written by strangers, because nobody says what they are"
    remedy = f"for those that are the house's own, such as sensors, set agent.trusted: [{listed}]"
    return warning("trust", text, remedy=remedy)


def _offer(tool: ToolOffer) -> str:
    tiers = sorted({command.tier for command in tool.commands})
    whose = "" if tool.executor in (UNNAMED, subjects.SERVICE_GATEWAY) else f" of {tool.executor}"
    return f"{tool.name}{whose} ({'/'.join(tiers)})"


async def of_the_gateway(config: Path | None) -> AsyncIterator[Finding]:
    """Nothing for a configuration without a gateway's section."""
    if config is None or not _has_section(config):
        return
    asked = await asyncio.create_subprocess_exec(*COMMAND, str(config), stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        coming, said = await asyncio.wait_for(asked.communicate(), READS_WITHIN_S)
    except TimeoutError:
        asked.kill()
        yield warning(NAME, f"it was not read within {READS_WITHIN_S:g} s", remedy="run `ductile-gateway check`")
        return
    if asked.returncode == 0:
        yield ok(NAME, "can be used")
        if coming:
            yield warning("ledger", coming.decode("utf-8", "replace").strip(), remedy=BEFORE)
    else:
        problem = said.decode("utf-8", "replace").strip().removeprefix("ductile-gateway: ")
        yield wrong(NAME, problem, remedy="docs/CONFIGURATION.md lists every setting")


def _has_section(config: Path) -> bool:
    try:
        content = parse(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, NotYaml):  # told by the agent's own reading of it
        return False
    return isinstance(content, dict) and SECTION in content
