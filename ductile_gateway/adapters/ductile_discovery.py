"""What a Ductile has to offer, asked at the start, together with whether our token opens what we need."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from ductile_gateway.adapters.ductile_api import Away, DuctileApi, Refused, Unreadable
from ductile_gateway.core.catalog import ToolChoice
from ductile_gateway.core.ductile_catalog import Declared, DuctileTools, pipeline_names, read_tools, wanted
from ductile_gateway.ductile_settings import DuctileSettings
from ductile_gateway.errors import Misconfigured, TryAgain


async def discover_tools(
    api: DuctileApi, choices: Mapping[str, ToolChoice] | None, settings: DuctileSettings
) -> DuctileTools:
    """The plugins and pipelines of the chosen tools. Raises Misconfigured when the token does not open them, TryAgain
    while Ductile is away."""
    declared = Declared(settings.idempotent, settings.reading_pipelines)
    try:
        await _probe(api)
        warned = await _events(api, settings)
        names = sorted(wanted(choices))
        found = await asyncio.gather(*(api.plugin(name) for name in names))
        pipelines = pipeline_names(await api.skills()) if names else frozenset()
    except Refused as refusal:
        raise Misconfigured(
            f"gateway.ductile: the token is refused what the gateway needs, which is plugin:rw and jobs:ro: {refusal}"
        ) from refusal
    except (Away, Unreadable) as error:
        raise TryAgain(f"gateway.ductile: {error}") from error
    plugins = {name: document for name, document in zip(names, found, strict=True) if document is not None}
    found_tools = read_tools(names, plugins, pipelines, declared=declared)
    return replace(found_tools, problems=(*warned, *found_tools.problems))


async def _probe(api: DuctileApi) -> None:
    posture = (await api.health()).get("posture")
    if posture == "management-only":
        raise Misconfigured(
            "gateway.ductile: this Ductile runs for its management only and does no work: give it a vault"
        )
    await api.may_read_jobs()
    if await api.may_see_configuration():
        raise Misconfigured(
            "gateway.ductile: the token may see Ductile's configuration, so it has the scope * or system:…, which "
            "opens far more than tools: make one with plugin:ro (plugin:rw where tools write), jobs:ro and events:ro"
        )


async def _events(api: DuctileApi, settings: DuctileSettings) -> tuple[str, ...]:
    """What is to be said of the stream of events."""
    if not settings.events or await api.may_follow_events():
        return ()
    return ("gateway.ductile: the token may not follow events: jobs are polled, which is slower. Give it events:ro",)
