"""Event streams, of a run and of all runs: every entry once and in order, over any number of reconnects."""

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.api import feed as feeds
from agent_service.run.journal import Commit, Run
from agent_service.store.database import FILE
from tests.core.cues import done
from tests.core.script import commits_of
from tests.http.house import House, bearer
from tests.http.wire import Event, events, followed
from tests.kit.runs import accepted, run_id, whole_run
from tests.kit.waiting import until
from tests.projections.people import a_run_in_doubt, answers

WITHIN_S = 20.0
ALL = "/v1/events"


def url(run: str) -> str:
    return f"/v1/runs/{run}/events"


def told_of(told: Sequence[Event]) -> list[tuple[str, int]]:
    return [(event.data["run"]["run_id"], event.data["entry"]["seq"]) for event in told]


async def test_entries_come_as_they_are_committed(over_http: httpx2.AsyncClient, house: House) -> None:
    commits = whole_run()
    run = await house.play(commits[:1])
    async with asyncio.timeout(WITHIN_S), over_http.stream("GET", url(run)) as answer:
        stream = events(answer)
        for commit in commits[1:]:
            assert (await anext(stream)).id == commit.entry.seq - 1
            await house.play([commit])
        assert (await anext(stream)).data["status"] == "done"
        assert await anext(stream, None) is None
    assert await followed(over_http, url(run), after=6) == [], "who has seen the end is told not to come back"


async def test_a_reader_who_is_behind_waits_for_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "READ_AT_ONCE", 2)
    stream = await feeds.Feed(house.store, poll_s=3600.0).follow_run(await house.play(whole_run()))
    assert isinstance(stream, feeds.EventStream)
    async with asyncio.timeout(WITHIN_S):
        assert len([frames async for frames in stream.body_iterator]) == 3


async def test_commits_are_watched_from_the_first_follower_to_the_last(house: House) -> None:
    here, elsewhere = list[Any](), list[Any]()
    feed = feeds.Feed(house.store, here, elsewhere, poll_s=3600.0)
    with feed.follow() as channel:
        with feed.follow(run_id(1)), feed.follow():
            assert here == elsewhere == [feed.announce]
        news = channel.news
        here[0](accepted())
        await asyncio.wait_for(news.wait(), WITHIN_S)
    assert here == elsewhere == []


async def test_an_entry_that_is_seen_before_its_commit_returned_comes_with_its_run_as_it_is(
    over_http: httpx2.AsyncClient, house: House
) -> None:
    *begun, last = whole_run()
    house.archive.before = await house.store.load(await house.play(begun))
    await house.elsewhere([last])
    (event,) = await followed(over_http, ALL, after=len(begun), most=1)
    assert (event.data["entry"]["status"], event.data["run"]["status"]) == ("done", "done")


async def test_a_run_that_an_answer_opens_again_is_followed_again_to_its_next_end(
    over_http: httpx2.AsyncClient, house: House
) -> None:
    commits = commits_of(a_run_in_doubt(run_id(1)) >> answers("it is there", "ran") >> done())
    run = await house.play(commits[:5])
    assert (await followed(over_http, url(run)))[-1].data["status"] == "escalated"
    assert await followed(over_http, url(run), after=5) == []
    await house.play(commits[5:6])
    reader = asyncio.create_task(followed(over_http, url(run), after=5))
    await until(lambda: house.followers)
    await house.play(commits[6:])
    assert [(event.id, event.data["status"]) for event in await reader] == [(6, "running"), (7, "done")]
    assert [event.id for event in await followed(over_http, url(run))] == [1, 2, 3, 4, 5, 6, 7]


async def test_what_others_wrote_cannot_forge_an_event(client: httpx2.AsyncClient, house: House) -> None:
    evil = "x\nid: 9\r\nevent: end\rdata: {}\n\n: \u2028 \u2029 \x1b[2J"
    run = await house.play([accepted(goal=evil)])
    await client.post(f"/v1/runs/{run}/cancel", json={"reason": evil})
    told = await followed(client, url(run))
    assert [(event.id, event.name) for event in told] == [(1, "WakeAccepted"), (2, "CancelRequested")]
    assert told[0].data["event"]["brief"]["goal"] == evil


async def test_a_caller_has_only_so_many_streams(
    over_http: httpx2.AsyncClient, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = url(await house.play([accepted()]))
    monkeypatch.setattr(feeds, "MOST_STREAMS_PER_CALLER", 20)
    transport = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None))
    async with (
        httpx2.AsyncClient(transport=transport, base_url=over_http.base_url, headers=bearer("reader")) as greedy,
        AsyncExitStack() as streams,
    ):
        for _ in range(20):
            answer = await streams.enter_async_context(greedy.stream("GET", path))
            assert answer.status_code == 200
        refused = await greedy.get(path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_streams")
        assert "retry-after" in refused.headers
        async with over_http.stream("GET", path) as other:
            assert other.status_code == 200
        monkeypatch.setattr(feeds, "MOST_STREAMS", 20)
        assert "0 of 20 event streams" in (await over_http.get(path)).json()["error"]["message"]

    async def is_free() -> bool:
        async with over_http.stream("GET", path, headers=bearer("reader")) as answer:
            return answer.status_code == 200

    await until(is_free)


async def test_a_stream_is_cut_off_where_the_journal_cannot_be_read_and_can_be_taken_up_again(
    over_http: httpx2.AsyncClient, house: House
) -> None:
    commits = whole_run()
    run = await house.play(commits[:2])
    async with asyncio.timeout(WITHIN_S), over_http.stream("GET", url(run)) as answer:
        stream = events(answer)
        assert [(await anext(stream)).id for _ in range(2)] == [1, 2]
        await house.elsewhere(commits[2:3])
        house.archive.away = True
        await house.play(commits[3:])
        assert await anext(stream, None) is None
    house.archive.away = False
    assert [event.id for event in await followed(over_http, url(run), after=2)] == [3, 4, 5, 6]


@pytest.mark.parametrize("seed", range(2))
async def test_twenty_cuts_lose_and_repeat_nothing_while_all_runs_go_on_here_and_elsewhere(
    over_http: httpx2.AsyncClient, house: House, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 # where a reader is cut
    turns = zip_longest(*(whole_run(number, steps=4) for number in range(1, 9)))
    commits: list[Commit] = [commit for commit in chain.from_iterable(turns) if commit]

    async def go_on() -> None:
        for number, commit in enumerate(commits):
            happens = house.elsewhere if number == len(commits) // 2 else house.play
            await happens([commit])

    going = asyncio.create_task(go_on())
    told: list[Event] = []
    for _ in range(20):
        told += await followed(over_http, ALL, after=told[-1].id if told else 0, most=chance.randint(1, 4))
    told += await followed(over_http, ALL, after=told[-1].id, most=len(commits) - len(told))
    await going
    assert told_of(told) == [(commit.entry.run_id, commit.entry.seq) for commit in commits]


async def test_a_damaged_entry_keeps_no_other_from_being_told_and_a_run_is_loaded_once_for_many(
    over_http: httpx2.AsyncClient, house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loads = house.archive.load, list[str]()

    async def counted(run: str, version: int = 0) -> Run | None:
        loads.append(run)
        return await load(run, version)

    monkeypatch.setattr(house.archive, "load", counted)
    await house.play(whole_run(1))
    await house.play([accepted(2)])
    with contextlib.closing(sqlite3.connect(tmp_path / "store" / FILE)) as connection, connection:
        connection.execute("UPDATE journal SET event = '{' WHERE run_id = ? AND seq = 3", (run_id(1),))
    told = told_of(await followed(over_http, ALL, after=0, most=6))
    assert told == [*((run_id(1), seq) for seq in (1, 2, 4, 5, 6)), (run_id(2), 1)]
    assert sorted(loads) == [run_id(1), run_id(2)]
