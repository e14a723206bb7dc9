"""Background work for a Ductile (its tools are discovered again, late jobs followed), and findings about it."""

import asyncio
from collections.abc import Sequence

from ductile_gateway.ductile.answers import Away
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.discovery import away, look_at
from ductile_gateway.ductile.late import Tell
from ductile_gateway.ductile.runner import DuctileRunner
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.toolbox import keep_fresh
from schemas.gateway_status import Finding


async def tend(settings: GatewaySettings, runner: DuctileRunner, offers: Offers, *, tell_late: Tell) -> None:
    """Until cancelled. Raises Broken or Misconfigured."""
    if settings.ductile is None:
        return
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.late.follow(tell_late))
        group.create_task(keep_fresh(settings, offers, runner.now_has, every_s=settings.ductile.refresh_s))


async def look(settings: DuctileSettings | None, offers: Offers) -> Sequence[Finding]:
    """What is found of the Ductile that carries out the calls."""
    if settings is None:
        return ()
    called = (offer for offer in offers.catalog.tools if offer.route not in settings.relayed())
    writes = any(command.tier == "write" for offer in called for command in offer.commands)
    async with open_api(settings) as api:
        try:
            return await look_at(api, settings, writes=writes)
        except Away as error:
            return [away(settings, error)]


async def look_at_calls(runner: DuctileRunner) -> Sequence[Finding]:
    """What is unusual about the calls in the hands of the Ductile."""
    alone = [
        Finding(
            name="ductile calls",
            mark="warning",
            text=f"{plugin} could not be reached several times and is left alone for {wait_s:.0f} s more",
            remedy="see whether Ductile answers; its calls wait on the bus",
        )
        for plugin, wait_s in sorted(runner.left_alone().items())
    ]
    if late := runner.late.waiting():
        text, remedy = f"{late} jobs have outlived their calls", "wait: what comes of them is told on the bus"
        return [*alone, Finding(name="ductile calls", mark="warning", text=text, remedy=remedy)]
    return alone
