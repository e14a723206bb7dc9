"""What came while another agent had the bus is read from the stream, also where the bus does not answer at first."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import nats.errors

from agent_service.bus.catch_up import MARK, Missed
from agent_service.bus.topology import topology
from agent_service.run.arrival import Arrival
from agent_service.run.intake import Intake
from groundwork.nats.completing import set_up
from groundwork.nats.link import NatsLink
from schemas import subjects


class SlowOnce:
    """A bus of which the first question comes to nothing."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self.asked = 0

    @property
    def jetstream(self) -> object:
        self.asked += 1
        if self.asked == 1:
            raise nats.errors.TimeoutError
        return self._link.jetstream


class Taking:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def receive(self, arrival: Arrival) -> None:
        self.bodies.append(arrival.body)


async def test_a_bus_that_is_silent_at_first_is_asked_again_until_it_was_read(tmp_path: Path, link: NatsLink) -> None:
    await set_up(link, topology(max_gib=0.1))
    began, mark = datetime.now(UTC), tmp_path / MARK
    await link.publish(subjects.TOOL_RESULT, b"the answer", msg_id="one", headers={})
    mark.touch()
    bus, taking = SlowOnce(link), Taking()
    missed = Missed(cast("NatsLink", bus), cast("Intake", taking), tmp_path, slots=4)
    async with asyncio.timeout(20):
        await missed.hear(began)
    assert taking.bodies == [b"the answer"]
    assert not mark.exists()
    assert bus.asked > 1
