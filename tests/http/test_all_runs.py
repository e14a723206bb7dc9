"""GET /v1/events: every entry of all runs, once and in the order of storing, over any number of reconnects."""

import asyncio
import contextlib
import random
import socket
import sqlite3
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path

import httpx2
import pytest

from agent_service.api.streams.channel import KEPT
from agent_service.run.journal import Commit
from agent_service.store.sql.database import FILE
from tests.http.house import HOST, House, secret, serving
from tests.http.sse import Event, events
from tests.kit.runs import accepted, run_id, whole_run
from tests.kit.waiting import until

WITHIN_S = 20.0
URL = "/v1/events"


def interleaved(*numbers: int, steps: int = 2) -> Sequence[Commit]:
    """The commits of several runs, in turns."""
    turns = zip_longest(*(whole_run(number, steps=steps) for number in numbers))
    return [commit for commit in chain.from_iterable(turns) if commit]


def named(commits: Sequence[Commit]) -> list[tuple[str, int]]:
    return [(commit.entry.run_id, commit.entry.seq) for commit in commits]


def told_of(told: Sequence[Event]) -> list[tuple[str, int]]:
    return [(event.data["run"]["run_id"], event.data["entry"]["seq"]) for event in told]


async def some(client: httpx2.AsyncClient, most: int, *, after: int | None = 0) -> list[Event]:
    """`most` events after position `after`, or from now on; then the reader hangs up."""
    told: list[Event] = []
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    async with asyncio.timeout(WITHIN_S), client.stream("GET", URL, headers=headers) as answer:
        assert answer.status_code == 200
        stream = events(answer)
        while len(told) < most and (event := await anext(stream, None)):
            told.append(event)
        await stream.aclose()  # type: ignore[attr-defined] # an async generator
    return told


async def test_without_an_id_the_stream_begins_now(over_http: httpx2.AsyncClient, house: House) -> None:
    await house.play(whole_run(1))
    reader = asyncio.create_task(some(over_http, 1, after=None))
    await until(lambda: house.feed.followers == 1)
    await house.play([accepted(2)])
    assert told_of(await reader) == [(run_id(2), 1)]


@pytest.mark.parametrize("seed", range(5))
async def test_twenty_cuts_lose_and_repeat_nothing_while_runs_go_on(
    over_http: httpx2.AsyncClient, house: House, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 # where a reader is cut
    commits = interleaved(*range(1, 9), steps=4)

    async def go_on() -> None:
        for number, commit in enumerate(commits):
            happens = house.elsewhere if number == len(commits) // 2 else (house.play, house.overhear)[number % 2]
            await happens([commit])

    going = asyncio.create_task(go_on())
    told: list[Event] = []
    for _ in range(20):
        told += await some(over_http, chance.randint(1, 4), after=told[-1].id if told else 0)
    told += await some(over_http, len(commits) - len(told), after=told[-1].id)
    await going
    assert told_of(told) == named(commits)


async def test_a_reader_that_falls_far_behind_loses_and_repeats_nothing(house: House) -> None:
    runs = [whole_run(number, steps=8) for number in range(1, KEPT // 10)]
    async with serving(house.app, send_buffer=4096) as port:
        reader, writer = await slow_reader(port)
        await until(lambda: house.feed.followers == 1)
        for commits in runs:
            await house.play(commits)
        told: list[int] = []
        async with asyncio.timeout(2 * WITHIN_S):
            while len(told) < sum(map(len, runs)):
                line = await reader.readline()
                if line.startswith(b"id: "):
                    told.append(int(line.removeprefix(b"id: ")))
        writer.close()
    assert told == list(range(1, len(told) + 1))


async def slow_reader(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Follows all runs, and reads little at a time."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=256 * 1024)
    head = f"GET {URL} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {secret('reader')}\r\n\r\n"
    writer.write(head.encode())
    return reader, writer


async def test_a_damaged_run_keeps_no_other_from_being_told(
    over_http: httpx2.AsyncClient, house: House, tmp_path: Path
) -> None:
    await house.play(whole_run(1))
    await house.play([accepted(2)])
    with contextlib.closing(sqlite3.connect(tmp_path / "store" / FILE)) as connection, connection:
        connection.execute("UPDATE journal SET event = '{' WHERE run_id = ? AND seq = 3", (run_id(1),))
    assert told_of(await some(over_http, 1)) == [(run_id(2), 1)]


@pytest.mark.parametrize("sent", ["-1", "x", "7", "9" * 30])
async def test_an_id_that_is_none_of_the_journal_is_refused(
    client: httpx2.AsyncClient, house: House, sent: str
) -> None:
    await house.play(whole_run())
    answer = await client.get(URL, headers={"Last-Event-ID": sent})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "Last-Event-ID")
