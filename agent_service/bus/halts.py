"""Whether everything is stopped, as the services of a bus show it to each other: a record in a key-value bucket."""

from uuid import uuid4

from pydantic import ValidationError

from groundwork.nats.key_value import value
from groundwork.nats.link import NatsLink
from groundwork.service.errors import GiveUp, Misconfigured, TryAgain
from schemas import subjects
from schemas.halt import SUBJECT, Halt

SHOWN_WITHIN_S = 2.0


class NatsBoard:
    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def show(self, halt: Halt) -> None:
        body, name = halt.model_dump_json().encode(), f"halt:{uuid4()}"
        try:
            await self._link.publish(SUBJECT, body, msg_id=name, headers={}, within_s=SHOWN_WITHIN_S)
        except (GiveUp, Misconfigured) as error:
            raise TryAgain(f"the stop cannot be shown on the bus: {error}") from error

    async def shown(self) -> Halt | None:
        found = await value(self._link, subjects.LEASE_BUCKET, subjects.HALT_KEY)
        try:
            return Halt.model_validate_json(found) if found else None
        except ValidationError:
            return None
