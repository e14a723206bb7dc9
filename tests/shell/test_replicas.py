"""Several agents of one store, in every corner in which two of them work on one run."""

import asyncio
from pathlib import Path

import pytest

from agent_service.core import supervising
from agent_service.core.effects import StartChild
from agent_service.core.events import ToolReturned
from agent_service.core.waiting import Reserve, Status
from agent_service.errors import ModelError, VersionMoved
from agent_service.publisher import Undone
from groundwork.service.errors import TryAgain
from schemas import agent_tool, subjects
from schemas.events import AgenticStart, ToolResult
from schemas.halt import Halt
from tests.kit.runs import NOON, SECOND, run_id
from tests.kit.waiting import until
from tests.shell.test_crashes_among_children import FAMILY, Parents
from tests.shell.town import Founded, Town, in_memory, of_a_log
from tests.shell.world import APPEND

RESERVE = Reserve(tokens=700, cost_usd=0.25)
MINDS = pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])
REQUEST = subjects.tool_request("append")


@pytest.fixture(params=["of rules alone", "of a log"])
def town(request: pytest.FixtureRequest, tmp_path: Path) -> Founded:
    """How towns are founded here."""
    return in_memory if request.param == "of rules alone" else of_a_log(tmp_path)


async def thinks(city: Town, name: str) -> "asyncio.Task[None]":
    """The agent has taken the start, and is in the middle of the first model call."""
    agent = city[name]
    agent.mind.may_answer.clear()
    agent.start()
    task = agent.begin(agent.take(subjects.START))
    await until_asked(city, name)
    return task


async def until_asked(city: Town, name: str) -> None:
    await asyncio.wait_for(city[name].mind.asked.wait(), 5)


async def asks_for_its_first_step(city: Town, name: str) -> None:
    """The agent has taken the start, and its run waits for the first result, which is there."""
    city[name].start()
    await city[name].take(subjects.START)
    city.play()


async def check_the_end(city: Town, *names: str) -> None:
    """The run is done, every step was done once, and its end was told once."""
    assert (await city.to_its_end(*names)).status is Status.DONE
    assert set(city.gateway.executed.values()) == {1}
    assert len(city.bus.events(subjects.COMPLETED)) == 1


# Any of them


@MINDS
async def test_any_of_them_takes_any_message_and_each_call_is_made_once(town: Founded, reserve: Reserve | None) -> None:
    async with town("abc", reserve=reserve) as city:
        await asks_for_its_first_step(city, "a")
        await check_the_end(city, "b", "c", "a")
        assert sum(city.calls.values()) == (await city.state()).spent.calls
        for agent in city.agents.values():
            await until(agent.has_done_all)


async def test_a_result_that_a_remembered_state_does_not_wait_for_is_taken_where_the_run_really_stands(
    town: Founded,
) -> None:
    async with town() as city:
        await asks_for_its_first_step(city, "a")
        city.shared.members["a"].deaf = True
        await city["b"].take(subjects.TOOL_RESULT)
        city.play()
        await city["a"].take(subjects.TOOL_RESULT)
        assert (await city.state()).has_finished(2)


async def test_an_answer_for_which_a_remembered_state_does_not_wait_is_heard_where_the_run_really_stands(
    town: Founded,
) -> None:
    async with town() as city:
        await asks_for_its_first_step(city, "a")
        city.shared.members["a"].deaf = True
        city["b"].mind.outage = ModelError("pause", "model_auth", "the key is refused")
        await city["b"].take(subjects.TOOL_RESULT)
        assert (await city.state()).status is Status.PAUSED
        await city["a"].say("s1", kind="answer")
        await check_the_end(city, "a")


async def test_what_a_result_is_worth_is_judged_again_when_the_run_has_moved_on(town: Founded) -> None:
    async with town() as city:
        await asks_for_its_first_step(city, "a")
        before = await city.state()
        await city["b"].say("s1")
        result = ToolResult(run_id=before.run_id, step=1, tool="append", status="ok", completed_at=NOON)
        with pytest.raises(VersionMoved):
            await city["a"].turns.take(before.run_id, ToolReturned(at=NOON, result=result), made_of=before)
        city.shared.members["a"].deaf = True
        await city["b"].say("s2")
        await city["a"].take(subjects.TOOL_RESULT)
        await check_the_end(city, "a")


async def test_what_another_has_committed_is_remembered_as_soon_as_it_is_heard_of(town: Founded) -> None:
    async with town() as city:
        await asks_for_its_first_step(city, "a")
        await city["b"].say("s1")

        async def it_is_remembered() -> bool:
            return await city["a"].turns.state(run_id(1)) == await city["b"].turns.state(run_id(1))

        await until(it_is_remembered)


async def test_a_child_that_is_started_after_its_parent_ended_elsewhere_is_cancelled(town: Founded) -> None:
    tools = (APPEND, agent_tool.offer())
    async with town(mind=Parents, tools=tools, policy=FAMILY) as city:
        city["a"].start("append on both sides")
        city.bus.away = True
        await city["a"].take(subjects.START)
        city.bus.away = False
        parent = await city.state()
        starts = [owed for owed in supervising.owed(parent) if isinstance(owed, StartChild)]
        city.shared.members["a"].deaf = True
        await city["b"].cancel()
        assert len(starts) == 2
        await city["a"].turns.see_to(parent, starts)
        assert [run.status for run in await city["a"].family()] == [Status.CANCELLED] * 3


async def test_a_result_that_comes_to_two_of_them_at_once_has_one_turn(town: Founded) -> None:
    async with town() as city:
        await asks_for_its_first_step(city, "a")
        (result,) = (each for each in city.bus.unacknowledged if each.subject == subjects.TOOL_RESULT)
        arrival = city["a"].arrival(city.bus.unacknowledged.index(result))
        await asyncio.gather(*(agent.intake.receive(arrival) for agent in city.agents.values()))
        assert (await city.kinds()).count("ToolReturned") == 1
        city.bus.unacknowledged.remove(result)
        await check_the_end(city, "a", "b")


# Whose a model call is


@MINDS
async def test_a_cancel_that_another_takes_ends_the_model_call_of_who_thinks(
    town: Founded, reserve: Reserve | None
) -> None:
    async with town(reserve=reserve) as city:
        thinking = await thinks(city, "a")
        await city["b"].cancel()
        await asyncio.wait_for(thinking, 5)
        assert (await city.state()).status is Status.CANCELLED
        assert city.calls == {"a": 1, "b": 0}
        assert "ModelReplied" not in await city.kinds()


async def test_a_cancel_that_is_never_heard_of_still_keeps_the_reply_from_counting(town: Founded) -> None:
    async with town(reserve=RESERVE) as city:
        thinking = await thinks(city, "a")
        city.shared.members["a"].deaf = True
        await city["b"].cancel()
        city["a"].mind.may_answer.set()
        await asyncio.wait_for(thinking, 5)
        assert (await city.kinds())[-1] == "CancelRequested"
        assert city.bus.events(REQUEST) == []


@MINDS
async def test_what_a_person_says_through_another_reaches_the_run_in_the_middle_of_a_call(
    town: Founded, reserve: Reserve | None
) -> None:
    async with town(reserve=reserve) as city:
        thinking = await thinks(city, "a")
        await city["b"].say("s1")
        city["a"].mind.may_answer.set()
        await asyncio.wait_for(thinking, 5)
        assert "s1" in (await city.state()).signals
        assert city.calls["b"] == 0
        await check_the_end(city, "b", "a")
        assert (await city.kinds()).count("SignalReceived") == 1


@pytest.mark.parametrize("hears", [True, False], ids=["hears of it", "hears of nothing"])
async def test_the_reply_of_one_whose_call_another_has_taken_up_is_not_committed(town: Founded, *, hears: bool) -> None:
    async with town(reserve=RESERVE) as city:
        thinking = await thinks(city, "a")
        city.shared.members["a"].deaf = not hears
        city.shared.live.remove("a")  # which asked for its lease a moment ago, and so commits still
        city["b"].mind.may_answer.clear()
        await city["b"].look()
        await until_asked(city, "b")
        city["a"].mind.may_answer.set()
        await asyncio.wait_for(thinking, 5)
        assert await city.who("CallReserved") == ["a", "b"]
        assert await city.who("ModelReplied") == []
        city["b"].mind.may_answer.set()
        await until(lambda: city.bus.events(REQUEST))
        await check_the_end(city, "b")
        state = await city.state()
        assert (city.calls["a"], state.spent.lost_calls) == (1, 1)


async def test_one_that_hears_of_it_gives_up_a_call_that_another_has_set_something_aside_for(town: Founded) -> None:
    async with town(reserve=RESERVE) as city:
        thinking = await thinks(city, "a")
        city.shared.live.remove("a")
        city["b"].mind.may_answer.clear()
        await city["b"].look()
        await asyncio.wait_for(thinking, 5)  # and never answered
        assert not city["a"].mind.may_answer.is_set()
        city["b"].mind.may_answer.set()
        await until(lambda: city.bus.events(REQUEST))
        assert await city.who("ModelReplied") == ["b"] * 2


@MINDS
async def test_two_that_both_take_up_a_call_make_it_once(town: Founded, reserve: Reserve | None) -> None:
    async with town("abc", reserve=reserve) as city:
        await thinks(city, "c")
        await city.dies("c")
        await city["a"].look()
        city.shared.live.reverse()  # b takes itself for the heir, too
        await city["b"].look()
        await until(lambda: city.bus.events(REQUEST))
        await check_the_end(city, "a", "b")
        replies = await city.kinds()
        state = await city.state()
        assert replies.count("ModelReplied") == state.spent.calls
        if reserve:  # only what costs nothing may be asked twice
            assert city.calls["a"] + city.calls["b"] == state.spent.calls


# What a dead one leaves


@MINDS
async def test_a_call_that_a_dead_one_was_making_is_made_by_its_heir(town: Founded, reserve: Reserve | None) -> None:
    async with town(reserve=reserve) as city:
        await thinks(city, "a")
        await city.dies("a")
        await city["b"].look()
        await until(lambda: city.bus.events(REQUEST))
        await check_the_end(city, "b")
        assert (await city.state()).spent.lost_calls == (1 if reserve else 0)
        await until(city["b"].has_done_all)


async def test_what_a_dead_one_has_said_is_not_said_again_by_who_is_not_its_heir(town: Founded) -> None:
    async with town("abc") as city:
        await thinks(city, "c")
        await city.dies("c")
        await city["b"].look()
        assert city["b"].turns.undone.left == {}
        assert city.calls["b"] == 0


@MINDS
async def test_a_call_of_a_dead_one_is_made_though_the_newest_entry_is_of_one_that_lives(
    town: Founded, reserve: Reserve | None
) -> None:
    async with town("abc", reserve=reserve) as city:
        await thinks(city, "c")
        await city["b"].say("s1")
        await city.dies("c")
        await asyncio.gather(city["a"].look(), city["b"].look())
        await until(lambda: city.bus.events(REQUEST))
        assert (city.calls["a"] > 0, city.calls["b"]) == (True, 0)
        await check_the_end(city, "a", "b")
        for name in "ab":
            await until(city[name].has_done_all)


@MINDS
async def test_a_call_of_one_that_lives_is_not_made_again_though_the_newest_entry_is_of_a_dead_one(
    town: Founded, reserve: Reserve | None
) -> None:
    async with town("abc", reserve=reserve) as city:
        thinking = await thinks(city, "c")
        saying = city["b"].begin(city["b"].say("s1"))
        await saying
        city["b"].faulty.forget_told()
        await city.dies("b")
        await city["a"].look()
        await until(city["a"].has_done_all)
        city["c"].mind.may_answer.set()
        await asyncio.wait_for(thinking, 5)
        assert city.calls["a"] == 0
        await check_the_end(city, "c", "a")


async def test_a_request_that_a_dead_one_could_not_send_is_sent_though_others_have_moved_the_run_on(
    town: Founded,
) -> None:
    async with town() as city:
        city.bus.away = True
        city["a"].start()
        await city["a"].begin(city["a"].take(subjects.START))
        city.bus.away = False
        await city["b"].say("s1")
        assert city.bus.events(REQUEST) == []
        await city.dies("a")
        await city["b"].look()
        await until(lambda: city.bus.events(REQUEST))
        await check_the_end(city, "b")
        await until(city["b"].has_done_all)


async def test_what_was_done_and_not_noted_when_one_died_is_said_under_the_same_ids_and_asked_of_no_model(
    town: Founded,
) -> None:
    async with town(reserve=RESERVE) as city:
        await asks_for_its_first_step(city, "a")
        city["a"].faulty.forget_told()
        calls, published = city.calls["a"], dict(city.bus.published)
        await city.dies("a")
        await city["b"].look()
        await until(city["b"].has_done_all)
        assert city.bus.published == published
        assert city.calls == {"a": calls, "b": 0}
        await check_the_end(city, "b")


async def test_one_that_was_taken_for_dead_and_comes_back_does_not_make_the_call_that_its_heir_makes(
    town: Founded,
) -> None:
    async with town(reserve=RESERVE) as city:
        await thinks(city, "a")
        await city.dies("a")
        city["b"].mind.may_answer.clear()
        await city["b"].look()
        await until_asked(city, "b")
        city.begins_again("a")
        await city["a"].look()
        await until(city["a"].has_done_all)
        city["a"].mind.may_answer.set()
        city["b"].mind.may_answer.set()
        await until(lambda: city.bus.events(REQUEST))
        assert city.calls["a"] == 1
        await check_the_end(city, "a", "b")


async def test_the_heir_of_an_heir_goes_on(town: Founded) -> None:
    async with town("abc", reserve=RESERVE) as city:
        await thinks(city, "a")
        await city.dies("a")
        city["b"].mind.may_answer.clear()
        await city["b"].look()
        await until_asked(city, "b")
        await city.dies("b")
        await city["c"].look()
        await until(lambda: city.bus.events(REQUEST))
        await check_the_end(city, "c")
        assert (await city.state()).spent.lost_calls == 2
        await until(city["c"].has_done_all)


async def test_a_run_that_one_has_accepted_and_not_begun_is_begun_by_its_heir(town: Founded) -> None:
    async with town("abc") as city:
        await city["c"].intake.wake("w", AgenticStart(goal="append"), known=False, by="test")
        assert [list(await city[name].store.queued(10)) for name in "abc"] == [[], [], [run_id(1)]]
        await city.dies("c")
        assert [list(await city[name].store.queued(10)) for name in "ab"] == [[run_id(1)], []]


# Commits whose acknowledgement is lost


@MINDS
async def test_an_entry_that_was_stored_without_a_word_is_carried_out_by_who_has_committed_it(
    town: Founded, reserve: Reserve | None
) -> None:
    async with town(reserve=reserve) as city:
        await asks_for_its_first_step(city, "a")
        city.shared.members["a"].loses_word()
        with pytest.raises(TryAgain):
            await city["a"].take(subjects.TOOL_RESULT)
        await city["b"].take(subjects.TOOL_RESULT)  # to which it is delivered now: it has been heard
        await until(lambda: len(city.bus.events(REQUEST)) == 2)
        assert city.calls["b"] == 0
        await check_the_end(city, "b", "a")
        for name in "ab":
            await until(city[name].has_done_all)


async def test_a_run_that_was_accepted_without_a_word_is_one_run_and_begins_once(town: Founded) -> None:
    async with town() as city:
        city["a"].start()
        city.shared.members["a"].loses_word()
        with pytest.raises(TryAgain):
            await city["a"].take(subjects.START)
        await city["b"].take(subjects.START)
        await city["a"].intake.begin(run_id(1))
        assert sum((await city["a"].store.counts()).values()) == 1
        await check_the_end(city, "b", "a")


async def test_a_reserve_that_was_stored_without_a_word_leads_to_one_call(town: Founded) -> None:
    async with town(reserve=RESERVE) as city:
        city["a"].start()
        await city["a"].intake.receive(city["a"].arrival(0))
        city.bus.unacknowledged.pop(0)
        city.shared.members["a"].loses_word()  # of RunStarted: the run is begun again
        with pytest.raises(TryAgain):
            await city["a"].intake.begin(run_id(1))
        await until(lambda: city.bus.events(REQUEST))
        assert sum(city.calls.values()) == (await city.state()).spent.calls
        await check_the_end(city, "a", "b")


# The switch


async def test_what_another_stops_is_stopped_here_and_goes_on_when_that_one_lets_it(town: Founded) -> None:
    async with town() as city:
        await asks_for_its_first_step(city, "a")
        halt = Halt(number=1, since=NOON, by="ann", reason="it mails everybody")
        city["b"].switch.hear(halt)
        await city["b"].take(subjects.TOOL_RESULT)
        assert (await city.state()).has_finished(1)
        assert city.calls["b"] == 0
        let_go = halt.model_copy(update={"until": NOON, "until_by": "ann"})
        city["b"].switch.hear(let_go)
        assert "stopped by ann" in city["b"].brake.why
        city["b"].switch.hear(let_go.model_copy(update={"over": True}))
        city["b"].switch.hear(halt)  # which comes late, and counts for nothing
        await until(lambda: len(city.bus.events(REQUEST)) == 2)
        await check_the_end(city, "b", "a")


async def test_where_who_lets_everything_go_on_dies_on_the_way_another_does_so(town: Founded) -> None:
    async with town() as city:
        await asks_for_its_first_step(city, "a")
        halt = Halt(number=1, since=NOON, by="ann", until=NOON + SECOND, until_by="ann")
        city["b"].switch.hear(halt)
        await city["b"].switch.look()
        assert city["b"].brake.why
        city["b"].clock.advance(seconds=12)
        await city["b"].switch.look()
        assert not city["b"].brake.why
        assert (await city.kinds())[-1] == "StoodStill"
        await check_the_end(city, "b", "a")


# What is done


def test_an_older_entry_that_is_found_later_counts_before_a_newer_one() -> None:
    told: list[tuple[int, int]] = []
    undone = Undone(lambda _, seq, *, since: told.append((since, seq)))
    undone.begin("run", (5,))
    undone.found("run", (3, 5))
    assert undone.take("run") == {3}
    undone.done("run", (5,))
    assert told == []
    undone.done("run", (3,))
    assert told == [(3, 5)]
