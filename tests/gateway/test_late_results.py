"""What comes of a call after it was answered that nobody saw its end: told once, and only then."""

from ductile_gateway.calls.call import Intent, ToolOutcome, Verdict, failed
from schemas import keys, subjects
from tests.gateway.parts import NOON, RUN, World, a_request, asked_for, result_in

SAVED = asked_for(a_request("save", attempt=2))


async def told_after(answered: ToolOutcome, verdict: Verdict) -> tuple[World, bool]:
    world = World()
    await world.answers().record(SAVED, answered)
    world.clock.pass_by(90)
    return world, await world.answers().tell_late(SAVED.key, verdict)


async def test_a_write_that_ended_well_after_all_is_told_under_a_key_of_its_own() -> None:
    in_doubt = failed("in_doubt", "nobody knows", retryable=False)
    world, done = await told_after(in_doubt, ToolOutcome("ok", text="written"))
    ((subject, key, body, headers),) = world.bus.messages
    result = result_in(body)
    assert done
    assert (subject, key) == (subjects.TOOL_RESULT, keys.late_result(RUN, 1, 2))
    assert headers["ce-id"] == key
    assert (result.status, result.error, result.step, result.attempt) == ("ok", None, 1, 2)
    assert result.result is not None
    assert result.result.model_dump()["summary"] == "written"
    assert (result.completed_at - NOON).total_seconds() == 90


async def test_a_call_whose_end_was_told_is_not_told_again() -> None:
    world, done = await told_after(ToolOutcome("ok", text="in time"), ToolOutcome("ok", text="late"))
    assert (done, world.bus.messages) == (True, [])


async def test_nothing_is_told_before_the_call_is_answered() -> None:
    world = World()
    assert not await world.answers().tell_late(SAVED.key, ToolOutcome("ok"))
    await world.ledger.intend(Intent(asked=SAVED, may_repeat=False, deadline_at=NOON))
    assert not await world.answers().tell_late(SAVED.key, ToolOutcome("ok"))
    assert world.bus.messages == []
