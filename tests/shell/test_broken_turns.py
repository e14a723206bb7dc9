"""A fault of the program in the middle of a turn: no run stands still over it, and no other run notices."""

import pytest

from agent_service.core.waiting import Status
from schemas import subjects
from schemas.events import AgenticStart, Signal
from tests.shell.world import World


@pytest.mark.parametrize("event", ["RunStarted", "ModelReplied", "ToolReturned"])
async def test_a_run_over_whose_event_the_agent_breaks_fails_and_says_so(event: str) -> None:
    world = World()
    world.faulty.breaks_over = event
    world.start()
    await world.until_quiet()
    state = await world.state()
    assert (state.status, state.ending_class) == (Status.FAILED, "internal")
    assert state.reason.startswith(f"a fault of the agent (ZeroDivisionError) over an event of kind {event}: ")
    assert [failed["class"] for failed in world.bus.events(subjects.FAILED)] == ["internal"]


async def test_effects_that_break_are_tried_again_and_not_for_ever() -> None:
    world = World()
    world.mind.outage = RuntimeError("nobody foresaw it")
    world.start()
    await world.until_quiet()
    assert (await world.state()).status is Status.RUNNING
    for _ in range(2):
        await world.try_again()
    state = await world.state()
    assert (state.status, state.ending_class) == (Status.FAILED, "internal")
    assert "RuntimeError" in state.reason
    assert "nobody foresaw it" not in state.reason, "what an error says is for the log alone"
    assert (world.turns.undone.left, sum(world.mind.calls.values())) == ({}, 3)


async def test_a_signal_over_which_the_agent_breaks_is_the_callers_to_hear_and_the_run_goes_on() -> None:
    world = World()
    world.faulty.breaks_over = "SignalReceived"
    run_id, _ = await world.intake.wake("w", AgenticStart(goal="append"), known=False, by="test")
    with pytest.raises(ZeroDivisionError):
        await world.intake.signal(Signal(run_id=run_id, signal_id="s", kind="message", message="hello"), by="test")
    assert not (await world.state()).final
