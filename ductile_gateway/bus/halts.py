"""Whether everything is stopped, as the agent shows it on the bus."""

import asyncio
import logging

from pydantic import ValidationError

from ductile_gateway.calls.waiting import Standstill
from groundwork.nats.asking import newest
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from schemas import subjects
from schemas.status import Halt

LOOK_S = 0.25

log = logging.getLogger(__name__)


async def look(link: NatsLink, standstill: Standstill) -> None:
    found = (await newest(link, subjects.LEASE_BUCKET, subjects.HALT_KEY)).body
    before = standstill.why
    try:
        standstill.show(Halt.model_validate_json(found) if found else None)
    except ValidationError:  # the agent puts it right
        return
    if standstill.why != before:
        log.warning("stopped" if standstill.why else "everything goes on", extra={"why": standstill.why or before})


async def look_at_last(link: NatsLink, standstill: Standstill) -> None:
    while True:
        try:
            return await look(link, standstill)
        except TryAgain:
            await asyncio.sleep(LOOK_S)


async def follow(link: NatsLink, standstill: Standstill) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            await look(link, standstill)
        except TryAgain as error:
            log.debug("whether everything is stopped cannot be seen", extra={"why": str(error)})
