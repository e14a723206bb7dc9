"""Check of what `retrieve` asks when a tool needs more before it can answer: is it on offer? Pure."""

from collections.abc import Sequence

from agent_service.settings import ContinuationSettings
from agent_service.telling.findings import ok, warning
from schemas.catalog import ToolOffer
from schemas.gateway_status import Finding

RETRIEVAL = "retrieval"
SETTING = "agent.continuations.retrieval_tool"


def retrieval(settings: ContinuationSettings, offered: Sequence[ToolOffer]) -> Finding:
    """`offered`: the tools that runs may use. That there is none by the name of the default is no fault."""
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
