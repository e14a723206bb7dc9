"""Serves the ingress: its record, its socket, and uvicorn, until it is cancelled."""

import asyncio
import logging
from collections.abc import Callable

from ductile_gateway.ingress.http import Told, create_app
from ductile_gateway.ingress.intake import Deliveries, Intake
from ductile_gateway.ingress.results import FindOffer
from ductile_gateway.ingress.settings import IngressSettings
from ductile_gateway.ports import Artifacts, Bus, Clock
from groundwork.http.listener import address, listening
from groundwork.http.server import serve_http

log = logging.getLogger(__name__)


async def serve_ingress(
    settings: IngressSettings,
    *,
    deliveries: Deliveries,
    bus: Bus,
    artifacts: Artifacts,
    find_offer: FindOffer,
    clock: Clock,
    connected: Callable[[], bool],
    told: Told,
) -> None:
    """Take events from outside until cancelled; returns at once without listeners. `connected`: whether the bus is
    there. `told`: of each event. Raises Misconfigured or Broken."""
    if not settings.listens():
        return
    async with listening(settings.host, settings.port, who="gateway") as listener, asyncio.TaskGroup() as group:
        within_s, most = settings.answer_within_s, settings.max_in_hand
        intake = Intake(bus, artifacts, deliveries=deliveries, within_s=within_s, max_in_hand=most)
        app = create_app(settings, intake, find_offer=find_offer, clock=clock, connected=connected, told=told)
        group.create_task(serve_http(app, listener))
        log.info("events from outside are taken", extra={"http": address(listener)})
