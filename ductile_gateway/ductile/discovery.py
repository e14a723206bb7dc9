"""Discovers the tools of a Ductile, and checks its health and the scopes of our token.

The scopes show in answers to requests for unknown names: 403 without the scope, 400 or 404 with it.
"""

import asyncio
import logging
from collections.abc import Container, Mapping, Sequence
from typing import Literal, NoReturn

import httpx2

from ductile_gateway.calls.artifacts import printable
from ductile_gateway.calls.policy import Offers
from ductile_gateway.ductile import api
from ductile_gateway.ductile.api import Document, DuctileApi, Endpoint
from ductile_gateway.ductile.catalog import DuctileTools, pipeline_names, read_tools, wanted
from ductile_gateway.ductile.jobs import DuctileHealth
from ductile_gateway.ductile.settings import DuctileSettings, full_name, owner
from ductile_gateway.tools.catalog import ToolChoice
from groundwork.service.errors import Misconfigured, TryAgain
from groundwork.service.json_log import Outage
from groundwork.service.serving import let_recovery_start
from schemas.status import Finding

LOOK_S = 2.0
ANSWER_WITHIN_S = 5.0

log = logging.getLogger(__name__)


async def follow_health(settings: DuctileSettings, health: DuctileHealth) -> NoReturn:
    outage = Outage(settings.label.capitalize(), log)
    await let_recovery_start()
    async with api.open_api(settings) as ductile:
        while True:
            health.queue = None
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    health.queue = (await ductile.health())["queue_depth"]
                outage.over()
            except (api.Unavailable, TimeoutError) as error:
                late = f"the Ductile at {settings.url} did not answer within {ANSWER_WITHIN_S:g} s"
                outage.continues(str(error) or late)
            health.trouble = outage.why
            await asyncio.sleep(LOOK_S)


_Mark = Literal["ok", "warning", "wrong"]
_NEEDED = (Endpoint.PLUGIN, Endpoint.CALL, Endpoint.JOB)
_WANTED = (Endpoint.PIPELINE, Endpoint.LOGS, Endpoint.TREE)


async def discover_tools(choices: Mapping[str, ToolChoice] | None, settings: DuctileSettings) -> DuctileTools:
    """Raises Misconfigured for a token with the wrong scopes, TryAgain while Ductile is unavailable."""
    try:
        async with api.open_api(settings) as ductile:
            for finding in await check_with(ductile, settings, writes=False):
                if finding.mark == "wrong":
                    raise Misconfigured(f"{settings.place}: {finding.text}: {finding.remedy}")
            names = sorted(wanted(choices))
            documents = await asyncio.gather(*map(ductile.plugin, names))
            pipelines = pipeline_names(await ductile.skills()) if names else frozenset[str]()
    except api.DuctileRefused as refusal:
        raise Misconfigured(f"{settings.place}: {refusal}") from refusal
    except (api.Unavailable, api.UnreadableAnswer) as error:
        raise TryAgain(f"{settings.place}: {error}") from error
    plugins = {name: document for name, document in zip(names, documents, strict=True) if document is not None}
    return read_tools(names, plugins, pipelines, settings)


async def check_with(ductile: DuctileApi, settings: DuctileSettings, *, writes: bool) -> tuple[Finding, Finding]:
    health = await ductile.health()
    try:
        mark, text, remedy = _token_state(await _closed(ductile, settings), settings, writes=writes)
    except api.DuctileRefused as refusal:
        mark, text, remedy = "wrong", f"is not known: {refusal}", f"correct {settings.place}.token"
    token = Finding(name=f"{settings.label} token", mark=mark, text=f"the token {text}", remedy=remedy)
    return _health_finding(health, settings), token


async def check(settings: DuctileSettings, offers: Offers, others: Container[str] = ()) -> Sequence[Finding]:
    relayed = {full_name(route, of=settings.name) for route in settings.relayed()}
    called = (offer for offer in offers.catalog.tools if owner(offer.route, others) == settings.name)
    writes = any(
        command.tier == "write" for offer in called if offer.route not in relayed for command in offer.commands
    )
    async with api.open_api(settings) as ductile:
        try:
            return await check_with(ductile, settings, writes=writes)
        except api.Unavailable as error:
            remedy = f"start it, or correct {settings.place}.url ({settings.url}): requests wait on the bus until then"
            return [Finding(name=settings.label, mark="wrong", text=str(error), remedy=remedy)]


def _token_state(closed: Sequence[Endpoint], settings: DuctileSettings, *, writes: bool) -> tuple[_Mark, str, str]:
    if Endpoint.CONFIG not in closed:
        text = "may see Ductile's configuration, so it has the scope * or system:…, which opens far more than tools"
        return "wrong", text, "make one with plugin:ro (plugin:rw where tools write), jobs:ro and events:ro"
    needed = [one for one in closed if one in _NEEDED]
    if missing := needed or [one for one in closed if one in _WANTED and (writes or one is not Endpoint.PIPELINE)]:
        scopes = ", ".join(dict.fromkeys(one.scope for one in missing))
        text = f"does not open {', nor '.join(one.opens for one in missing)}"
        return "wrong" if needed else "warning", text, f"give it {scopes}"
    if settings.events and Endpoint.EVENTS in closed:
        return "warning", "may not follow events: jobs are polled, which is slower", f"give it {Endpoint.EVENTS.scope}"
    opens = [one.opens for one in (*_NEEDED, Endpoint.PIPELINE, Endpoint.EVENTS) if one not in closed]
    return "ok", f"opens {', '.join(opens)}; nothing of the system", ""


def _health_finding(health: Document, settings: DuctileSettings) -> Finding:
    posture, waiting, plugins = (health.get(name) for name in ("posture", "queue_depth", "plugins_loaded"))
    what, at = printable(health.get("version"), 80), settings.url
    text = f"Ductile {what} at {at}, {printable(plugins, 20)} plugins, {printable(waiting, 20)} jobs waiting or running"
    text += f", {printable(posture, 80)}" if posture else ""
    mark: _Mark = "ok"
    remedy = ""
    if posture == "management-only":
        mark, remedy = "wrong", "give it a vault, so that it does more than manage itself"
    elif isinstance(waiting, int) and settings.queue_most is not None and waiting > settings.queue_most:
        mark, remedy = "warning", f"find out who fills it: beyond {settings.queue_most} jobs new calls wait on the bus"
    return Finding(name=settings.label, mark=mark, text=text, remedy=remedy)


async def _closed(ductile: DuctileApi, settings: DuctileSettings) -> Sequence[Endpoint]:
    """Endpoints that our token does not open. Raises Unavailable, and DuctileRefused for an unknown token."""
    probed = (*_NEEDED, *_WANTED, Endpoint.CONFIG)
    results = await asyncio.gather(*map(ductile.status, probed), return_exceptions=True)
    if error := next((one for one in results if isinstance(one, BaseException)), None):
        raise error  # not before all have ended: one in flight would leave its socket open
    shut = {endpoint: status == httpx2.codes.FORBIDDEN for endpoint, status in zip(probed, results, strict=True)}
    shut[Endpoint.CONFIG] = results[-1] != httpx2.codes.OK
    shut[Endpoint.EVENTS] = not (settings.events and await _may_follow(ductile))
    return [endpoint for endpoint, is_shut in shut.items() if is_shut]


async def _may_follow(ductile: DuctileApi) -> bool:
    """False only for a refusal: events are hints, and a proxy may hold them back."""
    try:
        async with ductile.events(silent_s=api.CONNECT_WITHIN_S):
            return True
    except api.Unavailable as error:
        return not isinstance(error, api.DuctileRefused)
