"""What a Ductile has to offer, and whether our token opens what we need: asked at the start, and now and then after."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from ductile_gateway.calls.catalog import HOUSEKEEPING, ToolChoice
from ductile_gateway.ductile.api import Away, Document, DuctileApi, Refused, Unreadable
from ductile_gateway.ductile.catalog import Declared, DuctileTools, pipeline_names, read_tools, wanted
from ductile_gateway.ductile.probe import look_at
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.errors import Misconfigured, TryAgain

NOT_FOUND = 404
NEEDED = "of May 2026 or later"


async def discover_tools(
    api: DuctileApi, choices: Mapping[str, ToolChoice] | None, settings: DuctileSettings
) -> DuctileTools:
    """The plugins and pipelines of the chosen tools. Raises Misconfigured when the token does not open them, TryAgain
    while Ductile is away."""
    try:
        warned = await _look(api, settings, writes=False)
        found = await _read(api, choices, settings)
        if _writes(found, choices or {}, settings.relayed()):
            warned = await _look(api, settings, writes=True)
    except Refused as refusal:
        raise Misconfigured(f"gateway.ductile: {refusal}") from refusal
    except (Away, Unreadable) as error:
        raise TryAgain(f"gateway.ductile: {error}") from error
    return replace(found, warnings=warned)


async def _look(api: DuctileApi, settings: DuctileSettings, *, writes: bool) -> tuple[str, ...]:
    """What is to be said of Ductile and of the token. Raises Misconfigured where nothing can be done with them."""
    findings = await look_at(api, settings, writes=writes)
    for finding in findings:
        if finding.mark == "wrong":
            raise Misconfigured(f"gateway.ductile: {finding.text}: {finding.remedy}")
    return tuple(f"gateway.ductile: {found.text}: {found.remedy}" for found in findings if found.mark == "warning")


async def _read(api: DuctileApi, choices: Mapping[str, ToolChoice] | None, settings: DuctileSettings) -> DuctileTools:
    names = sorted(wanted(choices))
    documents = await asyncio.gather(*(api.plugin(name) for name in names))
    plugins = {name: document for name, document in zip(names, documents, strict=True) if document is not None}
    pipelines = pipeline_names(await _skills(api, settings)) if names else frozenset()
    declared = Declared(settings.idempotent, settings.reading_pipelines)
    return read_tools(names, plugins, pipelines, declared=declared, relayed=settings.relayed())


async def _skills(api: DuctileApi, settings: DuctileSettings) -> Document:
    try:
        return await api.skills()
    except Refused as refusal:
        if refusal.status != NOT_FOUND:
            raise
        text = f"the Ductile at {settings.url} is too old: it has no /skills, so that it cannot tell its pipelines"
        raise Misconfigured(f"gateway.ductile: {text}: install a newer one ({NEEDED})") from refusal


def _writes(found: DuctileTools, choices: Mapping[str, ToolChoice], relayed: frozenset[str]) -> bool:
    """Whether a chosen command does for which the token is needed: events are signed instead."""
    chosen = ((choice.plugin or name, choice.commands) for name, choice in choices.items())
    return any(
        command.type == "write" and (command.name in commands if commands else command.name not in HOUSEKEEPING)
        for plugin, commands in chosen
        if plugin in found.manifests and plugin not in relayed
        for command in found.manifests[plugin].commands
    )
