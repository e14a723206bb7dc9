"""Several agents of one store, in every corner in which two of them work on one run."""

import asyncio
from pathlib import Path

import pytest

from agent_service.core.waiting import Reserve, Status
from agent_service.errors import ModelError
from agent_service.run.outbox import Undone
from groundwork.service.errors import TryAgain
from schemas import subjects
from schemas.status import Halt
from tests.kit.runs import NOON, run_id
from tests.kit.waiting import until
from tests.shell.courses import RESERVE
from tests.shell.town import Town, founded

MINDS = pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])
REQUEST = subjects.tool_request("append")


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
async def test_any_takes_any_message_and_each_call_is_made_once(tmp_path: Path, reserve: Reserve | None) -> None:
    async with founded(tmp_path, "abc", reserve=reserve) as city:
        await asks_for_its_first_step(city, "a")
        await check_the_end(city, "b", "c", "a")
        assert sum(city.calls.values()) == (await city.state()).spent.calls
        for agent in city.agents.values():
            await until(agent.has_done_all)


async def test_a_result_that_a_remembered_state_does_not_wait_for_is_taken_where_the_run_really_stands(
    tmp_path: Path,
) -> None:
    async with founded(tmp_path) as city:
        await asks_for_its_first_step(city, "a")
        city.shared.members["a"].deaf = True
        await city["b"].take(subjects.TOOL_RESULT)
        city.play()
        await city["a"].take(subjects.TOOL_RESULT)
        assert (await city.state()).has_finished(2)


async def test_an_answer_for_which_a_remembered_state_does_not_wait_is_heard_where_the_run_really_stands(
    tmp_path: Path,
) -> None:
    async with founded(tmp_path) as city:
        await asks_for_its_first_step(city, "a")
        city.shared.members["a"].deaf = True
        city["b"].mind.outage = ModelError("pause", "model_auth", "the key is refused")
        await city["b"].take(subjects.TOOL_RESULT)
        assert (await city.state()).status is Status.PAUSED
        await city["a"].say("s1", kind="answer")
        await check_the_end(city, "a")


async def test_what_another_has_committed_is_remembered_as_soon_as_it_is_heard_of(tmp_path: Path) -> None:
    async with founded(tmp_path) as city:
        await asks_for_its_first_step(city, "a")
        await city["b"].say("s1")

        async def it_is_remembered() -> bool:
            return await city["a"].turns.state(run_id(1)) == await city["b"].turns.state(run_id(1))

        await until(it_is_remembered)


# Whose a model call is


@MINDS
async def test_a_cancel_that_another_takes_ends_the_model_call_of_who_thinks(
    tmp_path: Path, reserve: Reserve | None
) -> None:
    async with founded(tmp_path, reserve=reserve) as city:
        thinking = await thinks(city, "a")
        await city["b"].cancel()
        await asyncio.wait_for(thinking, 5)
        assert (await city.state()).status is Status.CANCELLED
        assert city.calls == {"a": 1, "b": 0}
        assert "ModelReplied" not in await city.kinds()


@MINDS
async def test_what_a_person_says_through_another_reaches_the_run_in_the_middle_of_a_call(
    tmp_path: Path, reserve: Reserve | None
) -> None:
    async with founded(tmp_path, reserve=reserve) as city:
        thinking = await thinks(city, "a")
        await city["b"].say("s1")
        city["a"].mind.may_answer.set()
        await asyncio.wait_for(thinking, 5)
        assert "s1" in (await city.state()).signals
        assert city.calls["b"] == 0
        await check_the_end(city, "b", "a")
        assert (await city.kinds()).count("SignalReceived") == 1


@pytest.mark.parametrize("hears", [True, False], ids=["hears of it", "hears of nothing"])
async def test_a_reply_to_a_call_that_another_has_taken_up_is_not_committed(tmp_path: Path, *, hears: bool) -> None:
    async with founded(tmp_path, reserve=RESERVE) as city:
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


@MINDS
async def test_two_that_both_take_up_a_call_make_it_once(tmp_path: Path, reserve: Reserve | None) -> None:
    async with founded(tmp_path, "abc", reserve=reserve) as city:
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
async def test_a_call_that_a_dead_one_was_making_is_made_by_its_heir(tmp_path: Path, reserve: Reserve | None) -> None:
    async with founded(tmp_path, reserve=reserve) as city:
        await thinks(city, "a")
        await city.dies("a")
        await city["b"].look()
        await until(lambda: city.bus.events(REQUEST))
        await check_the_end(city, "b")
        assert (await city.state()).spent.lost_calls == (1 if reserve else 0)
        await until(city["b"].has_done_all)


# Commits whose acknowledgement is lost


@MINDS
async def test_an_entry_that_was_stored_without_a_word_is_carried_out_by_who_has_committed_it(
    tmp_path: Path, reserve: Reserve | None
) -> None:
    async with founded(tmp_path, reserve=reserve) as city:
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


# The switch


async def test_what_another_stops_is_stopped_here_and_goes_on_when_that_one_lets_it(tmp_path: Path) -> None:
    async with founded(tmp_path) as city:
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
