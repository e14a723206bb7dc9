"""GET /v1/runs/{run_id}/events: every entry once and in order, over any number of reconnects, until the run ends."""

import asyncio
from contextlib import AsyncExitStack

import httpx2
import pytest

from agent_service.api.streams.events import MOST_STREAMS_OF_A_CALLER
from tests.core.cues import PROOF, reflects
from tests.http.house import House, bearer
from tests.http.sse import Event, events
from tests.kit.runs import accepted, run_id, whole_run
from tests.kit.waiting import until
from tests.projections.journals import commits_of
from tests.projections.people import a_run_in_doubt, answers

WITHIN_S = 10.0


async def some(client: httpx2.AsyncClient, run: str, *, after: int = 0, most: int = 1000) -> list[Event]:
    """At most `most` events after number `after`; then the reader hangs up."""
    told: list[Event] = []
    headers = {"Last-Event-ID": str(after)} if after else {}
    async with asyncio.timeout(WITHIN_S), client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as answer:
        if answer.status_code == 204:
            return []
        assert answer.status_code == 200
        stream = events(answer)
        while len(told) < most and (event := await anext(stream, None)):
            told.append(event)
        await stream.aclose()  # type: ignore[attr-defined] # an async generator
    return told


async def test_readers_are_let_go_in_good_order_when_the_agent_stops(
    over_http: httpx2.AsyncClient, house: House
) -> None:
    run = await house.play(whole_run()[:2])
    reading = asyncio.create_task(some(over_http, run))
    await until(lambda: house.feed.followers == 1)
    house.feed.end()
    assert [event.id for event in await reading] == [1, 2]
    assert [event.id for event in await some(over_http, run)] == [1, 2]


async def test_entries_come_as_they_are_committed(over_http: httpx2.AsyncClient, house: House) -> None:
    commits = whole_run()
    run = await house.play(commits[:1])
    async with asyncio.timeout(WITHIN_S), over_http.stream("GET", f"/v1/runs/{run}/events") as answer:
        stream = events(answer)
        for commit in commits[1:]:
            assert (await anext(stream)).id == commit.entry.seq - 1
            await house.play([commit])
        assert (await anext(stream)).data["status"] == "done"
        assert await anext(stream, None) is None


@pytest.mark.parametrize("stretch", [1, 2, 3, 5])
async def test_reconnects_lose_and_repeat_nothing_while_the_run_goes_on(
    over_http: httpx2.AsyncClient, house: House, stretch: int
) -> None:
    commits = whole_run(steps=4)
    run = await house.play(commits[:1])

    async def go_on() -> None:
        for commit in commits[1:]:
            await house.play([commit])
            await asyncio.sleep(0)

    going = asyncio.create_task(go_on())
    told: list[Event] = []
    async with asyncio.timeout(2 * WITHIN_S):
        while not told or told[-1].data["status"] != "done":
            told += await some(over_http, run, after=told[-1].id if told else 0, most=stretch)
    await going
    assert [event.id for event in told] == [commit.entry.seq for commit in commits]


async def test_a_reader_who_has_seen_the_end_is_told_not_to_come_back(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(whole_run())
    answer = await client.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": "6"})
    assert (answer.status_code, answer.content) == (204, b"")


async def test_a_run_that_an_answer_opens_again_is_followed_again_to_its_next_end(
    over_http: httpx2.AsyncClient, house: House
) -> None:
    commits = commits_of(a_run_in_doubt(run_id(1)) >> answers("it is there", "ran") >> reflects("done", PROOF))
    run = await house.play(commits[:5])
    assert (await some(over_http, run))[-1].data["status"] == "escalated"
    assert await some(over_http, run, after=5) == []
    await house.play(commits[5:6])
    reader = asyncio.create_task(some(over_http, run, after=5))
    await until(lambda: house.feed.followers)
    await house.play(commits[6:])
    assert [(event.id, event.data["status"]) for event in await reader] == [(6, "running"), (7, "done")]
    assert [event.id for event in await some(over_http, run)] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("sent", ["-1", "x", "1.0", "1e3", "1_0", " 1 1", "٣", "0x1", "9" * 30, "7", "1\u2028"])
async def test_an_id_that_is_none_of_the_run_is_refused(client: httpx2.AsyncClient, house: House, sent: str) -> None:
    run = await house.play(whole_run())
    headers = [(b"last-event-id", sent.encode())]
    answer = await client.get(f"/v1/runs/{run}/events", headers=headers)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "Last-Event-ID")


async def test_what_others_wrote_cannot_forge_an_event(client: httpx2.AsyncClient, house: House) -> None:
    evil = "x\nid: 9\r\nevent: end\rdata: {}\n\n: \u2028 \u2029 \x1b[2J"
    run = await house.play([accepted(goal=evil)])
    await client.post(f"/v1/runs/{run}/cancel", json={"reason": evil})
    told = await some(client, run)
    assert [(event.id, event.name) for event in told] == [(1, "WakeAccepted"), (2, "CancelRequested")]
    assert told[0].data["event"]["goal"] == evil


async def test_a_caller_has_only_so_many_streams(over_http: httpx2.AsyncClient, house: House) -> None:
    run = await house.play([accepted()])
    limits = httpx2.Limits(max_connections=None)
    transport = httpx2.AsyncHTTPTransport(limits=limits)
    url = f"/v1/runs/{run}/events"
    async with (
        httpx2.AsyncClient(transport=transport, base_url=over_http.base_url, headers=bearer("reader")) as greedy,
        AsyncExitStack() as streams,
    ):
        for _ in range(MOST_STREAMS_OF_A_CALLER):
            answer = await streams.enter_async_context(greedy.stream("GET", url))
            assert answer.status_code == 200
        refused = await greedy.get(url)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_streams")
        assert "retry-after" in refused.headers
        async with over_http.stream("GET", url) as other:
            assert other.status_code == 200
    await until(lambda: _is_free(over_http, url))


async def _is_free(client: httpx2.AsyncClient, url: str) -> bool:
    async with client.stream("GET", url, headers=bearer("reader")) as answer:
        return answer.status_code == 200


async def test_a_stream_is_cut_off_where_the_journal_cannot_be_read_and_can_be_taken_up_again(
    over_http: httpx2.AsyncClient, house: House
) -> None:
    commits = whole_run()
    run = await house.play(commits[:2])
    async with asyncio.timeout(WITHIN_S), over_http.stream("GET", f"/v1/runs/{run}/events") as answer:
        stream = events(answer)
        assert [(await anext(stream)).id for _ in range(2)] == [1, 2]
        await house.elsewhere(commits[2:3])
        house.archive.away = True
        await house.play(commits[3:])
        assert await anext(stream, None) is None
    house.archive.away = False
    assert [event.id for event in await some(over_http, run, after=2)] == [3, 4, 5, 6]
