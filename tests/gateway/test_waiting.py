"""Calls that wait: who, since when, until when and why, for whoever asks the gateway how it is."""

from datetime import timedelta
from typing import Any

import pytest

from ductile_gateway.ports import unrecorded
from ductile_gateway.status import Status
from groundwork.service.errors import TryAgain
from tests.gateway.parts import NOON, RUN, FakeRunner, World, a_request, asked_for


class Absent(FakeRunner):
    """As a Ductile that is away."""

    async def run(self, call: Any, begin: Any = unrecorded) -> Any:
        del call, begin
        raise TryAgain("nothing answers at http://localhost:1")


ASKED = asked_for(a_request("save", deadline_at=NOON + timedelta(minutes=5)))


async def test_a_call_that_waits_for_an_absent_ductile_is_told_until_it_is_made() -> None:
    world = World(runner=Absent())
    relay = world.relay()
    status = Status({}, version="1")
    status.also_waiting(relay.waiting.told)
    with pytest.raises(TryAgain):
        await relay.take(ASKED)
    assert relay.waiting.told() == ()  # for a moment anything may wait
    world.clock.pass_by(10)
    told = await status.tell()
    (call,) = told.waiting
    assert (call.run_id, call.step, call.tool, call.since) == (RUN, 1, "fetch", NOON)
    assert (call.until, call.why) == (NOON + timedelta(minutes=5), "nothing answers at http://localhost:1")
    (found,) = told.findings
    assert (found.mark, f"1 calls wait, that of {RUN} step 1 since 12:00:00Z" in found.text) == ("warning", True)
    world.runner = FakeRunner()
    again = world.relay()
    await again.take(ASKED)
    assert again.waiting.told() == ()


async def test_a_call_that_is_given_up_says_what_it_has_waited_for() -> None:
    world = World(runner=Absent())
    relay = world.relay()
    with pytest.raises(TryAgain):
        await relay.take(ASKED)
    world.clock.pass_by(600)
    await relay.take(ASKED)
    (result,) = world.bus.results
    assert result.error is not None
    assert result.error.error_class == "expired"
    assert result.error.message.endswith("It has waited: nothing answers at http://localhost:1")
    assert relay.waiting.told() == ()
