"""Several gateways over one ledger: what only then can go wrong. Last their steps are interleaved as a seed says, while
words of the bus are lost and gateways are stopped, taken for dead, and go on: what must never happen does not."""

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import AlreadyStarted, Answer, Intent, Receipt
from ductile_gateway.ductile.watch import Job
from ductile_gateway.store import FILE
from ductile_gateway.store.shared.copy import TABLES
from ductile_gateway.store.shared.rows import CALL, subject_of
from ductile_gateway.store.stores import Stores
from groundwork.service.errors import TryAgain
from tests.gateway.parts import NOON, RUN
from tests.kit.waiting import until
from tests.ledger.kit import NAMES, SECOND, Crowd, a_delivery, an_answer, an_intent, named, published

KEY = an_intent().key


@pytest.fixture
def crowd(tmp_path: Path) -> Crowd:
    return Crowd(tmp_path)


@pytest.fixture
async def a(crowd: Crowd) -> AsyncIterator[Stores]:
    async with crowd.gateway("a") as stores:
        yield stores


@pytest.fixture
async def b(crowd: Crowd) -> AsyncIterator[Stores]:
    async with crowd.gateway("b") as stores:
        yield stores


async def test_of_two_that_adopt_a_call_one_does_and_its_first_gateway_has_it_no_more(crowd: Crowd) -> None:
    async with crowd.gateway("a") as a, crowd.gateway("b") as b, crowd.gateway("c") as c:
        await a.ledger.intend(an_intent(), Receipt(NOON))
        found = await b.ledger.find(KEY)
        assert isinstance(found, Intent)
        await b.ledger.adopt(found)
        with pytest.raises(TryAgain, match="another gateway sees to"):
            await c.ledger.adopt(found)
        await a.receipts.accepted(KEY, "j-of-another-life")
        await a.receipts.drop(KEY)
        with pytest.raises(TryAgain):
            await a.ledger.intend(an_intent())
        assert await b.receipts.find(KEY) == Receipt(NOON)


async def test_what_is_asked_by_key_is_known_though_the_own_copy_is_behind(crowd: Crowd, a: Stores, b: Stores) -> None:
    crowd.copies["b"].behind = True
    await a.ledger.intend(an_intent(), Receipt(NOON))
    await a.deliveries.record("peer", "delivery-1", event_key="key", at=NOON)
    assert await named(a.ledger, RUN, "call-1", NAMES) == ("a.md",)
    assert await b.ledger.find(KEY) == an_intent()
    assert await b.receipts.find(KEY) == Receipt(NOON)
    assert await b.deliveries.find("peer", "delivery-1") == "key"
    assert await b.ledger.digest_of(RUN, "A.md") == "of call-1"
    assert await named(b.ledger, RUN, "call-2", NAMES) == ("a-02.md",)
    assert await b.ledger.open_intents() == []


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        (b"no fact", "written by no gateway"),
        (b"{}\n", "written by no gateway"),
        (b'{"version": 1, "key": 7}\n', "written by no gateway"),
        (b'{"version": 2, "key": "another form"}\n', "newer gateway"),
    ],
)
async def test_a_fact_that_nobody_can_read_or_a_newer_gateway_wrote_stays_and_holds_up_its_own_call_alone(
    crowd: Crowd, a: Stores, b: Stores, fact: bytes, why: str
) -> None:
    await crowd.log.append(subject_of(CALL, KEY), fact, after=None)
    for refused in (a.ledger.find(KEY), a.ledger.intend(an_intent()), a.ledger.answer(an_answer())):
        with pytest.raises(TryAgain, match=why):
            await refused
    assert crowd.log.facts[subject_of(CALL, KEY)].body == fact
    await b.ledger.intend(an_intent(2))
    assert await a.ledger.open_intents() == [an_intent(2)]


async def test_a_gateway_that_joins_late_has_the_same_copy(crowd: Crowd, a: Stores, b: Stores, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        await a.ledger.intend(an_intent(step), Receipt(NOON))
    await b.ledger.answer(an_answer(2))
    await b.ledger.answer(an_answer(3, seconds=60))
    await a.overdue.add(an_intent(1).key, Job("j-1", pipeline=False), NOON)
    await named(a.ledger, RUN, an_answer(2).key, NAMES)
    await named(b.ledger, RUN, an_answer(3).key, NAMES)
    await a.deliveries.record("peer", "delivery-1", event_key="key", at=NOON)
    await b.deliveries.record("peer", "delivery-2", event_key="key", at=NOON + SECOND)
    await published(b.ledger, an_answer(2))
    await until(lambda: copied(tmp_path / "a") == copied(tmp_path / "b"))
    await a.ledger.forget_before(NOON + SECOND)
    await b.deliveries.forget_before(NOON + SECOND)
    async with crowd.gateway("c"):
        assert copied(tmp_path / "a") == copied(tmp_path / "b") == copied(tmp_path / "c")
    assert await b.ledger.find(an_answer(2).key) is None
    assert await a.deliveries.find("peer", "delivery-1") is None


async def test_what_a_dead_gateway_owed_is_its_heirs_and_no_longer_its_own(crowd: Crowd, a: Stores, b: Stores) -> None:
    await b.outbox.add([a_delivery(), a_delivery(run_id="run_another")])
    crowd.live.discard("b")
    assert await a.outbox.lanes_due(NOON) == ["subscription:a"]
    due = await a.outbox.due("subscription:a", NOON, 10)
    assert [await a.outbox.claim(one) for one in due] == [True, True]
    assert not await b.outbox.claim(a_delivery())
    await b.outbox.postpone(a_delivery(), NOON + 60 * SECOND, why="it had been stopped")
    assert await a.outbox.due("subscription:a", NOON, 1) == [a_delivery()]
    await a.outbox.settle(a_delivery(), "arrived", at=NOON)
    assert not await a.outbox.claim(a_delivery())


def copied(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """All that a gateway's copy has; the order of writing, without the numbers that say it."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.row_factory = sqlite3.Row
        found = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}  # noqa: S608
    return {table: [tuple(row) for row in rows] for table, rows in found.items()}


NAMED = ("a", "b", "c")
SEEDS = 250
LOST = 0.06
STOPPED = 0.05
PATIENCE = 400
"""Rounds after which something is stuck."""


class Course:
    """Three gateways and one seed. `sent`: how often the tool of the call was started; `told`: deliveries, in order."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)  # noqa: S311 # the same course for the same seed
        self.crowd = Crowd(folder)
        self.crowd.live.clear()
        self.crowd.live.update(NAMED)
        self.crowd.log.on_the_way = self.pause
        self.crowd.log.loses = self.loses
        self.sent = Counter[str]()
        self.receipt = Receipt(NOON) if seed % 2 else None
        """Of a Ductile, where others find the job; without one it is a plugin, which nobody else finds."""
        self.told: list[str] = []
        self.telling: set[str] = set()
        self.names: dict[str, tuple[str, ...]] = {}
        self.answers: list[Answer] = []

    async def pause(self) -> None:
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)

    def loses(self) -> str:
        drawn = self.random.random()
        return "it" if drawn < LOST else "word" if drawn < 2 * LOST else ""

    async def run(self) -> None:
        """Each gateway sees to everything until nothing is left to do."""
        async with AsyncExitStack() as stack:
            gateways = [await stack.enter_async_context(self.crowd.in_memory(name)) for name in NAMED]
            await asyncio.gather(*(self.live(name, stores) for name, stores in zip(NAMED, gateways, strict=True)))

    async def live(self, name: str, stores: Stores) -> None:
        for work in (self.call, self.artifacts, self.deliveries):
            for _ in range(PATIENCE):
                try:
                    if await work(name, stores):
                        break
                except (TryAgain, AlreadyStarted):
                    await self.pause()
            else:
                pytest.fail(f"{name} is stuck in {work.__name__}")

    async def stopped_now_and_then(self, name: str) -> None:
        """A stop, in which the others take it for dead; whoever goes on knows that, as by its lease."""
        if self.random.random() < STOPPED and len(self.crowd.live) > 1:
            self.crowd.live.discard(name)
            for _ in range(20):
                await asyncio.sleep(0)
            self.crowd.live.add(name)
            raise TryAgain("it was taken for dead")

    async def call(self, name: str, stores: Stores) -> bool:
        """As the relay takes a write."""
        match await stores.ledger.find(an_intent().key):
            case Answer() as answer:
                self.answers.append(answer)
                return True
            case Intent(by=by) as found if by not in ("", name):
                if by in self.crowd.live:
                    raise TryAgain("it is the other's")
                if self.receipt is None:
                    self.answers.append(await stores.ledger.answer(an_answer(text="in doubt")))
                    return True
                await stores.ledger.adopt(found)
            case Intent() as found if self.sent[found.key]:
                self.answers.append(await stores.ledger.answer(an_answer(text=name)))
                return True
        if not self.sent[an_intent().key]:
            await self.begin(name, stores)
        return False

    async def begin(self, name: str, stores: Stores) -> None:
        if await stores.receipts.find(an_intent().key):
            await stores.receipts.drop(an_intent().key)
        await stores.ledger.intend(an_intent(), self.receipt)
        await self.stopped_now_and_then(name)
        self.sent[an_intent().key] += 1

    async def artifacts(self, name: str, stores: Stores) -> bool:
        self.names[name] = await named(stores.ledger, "run", f"call-{name}", ("a", f"{name}1"), ("a", f"{name}2"))
        return True

    async def deliveries(self, name: str, stores: Stores) -> bool:
        """Each takes events of the run, and sends what is its own."""
        for event in ("1", "2"):
            await stores.outbox.add([a_delivery(event)])
        for one in await stores.outbox.due("subscription:a", NOON, 8):
            if await stores.outbox.claim(one):
                await self.stopped_now_and_then(name)
                await self.send(one.key[-1])
                await stores.outbox.settle(one, "arrived", at=NOON)
        return stores.outbox.backlog().waiting == 0

    async def send(self, event: str) -> None:
        assert event not in self.telling, "two gateways send it at the same time"
        self.telling.add(event)
        await self.pause()
        self.telling.remove(event)
        self.told.append(event)

    def judged(self) -> dict[str, Any]:
        return {
            "started twice": self.sent[an_intent().key] > 1,
            "never started": self.receipt is not None and not self.sent,
            "answers": len({answer.body for answer in self.answers}),
            "names": len({name for names in self.names.values() for name in names}),
            "told": list(dict.fromkeys(self.told)),
        }


async def test_whatever_the_order_each_write_is_started_once_and_each_receiver_told_in_order(tmp_path: Path) -> None:
    right = {"started twice": False, "never started": False, "answers": 1, "names": 6, "told": ["1", "2"]}
    for seed in range(SEEDS):
        course = Course(seed, tmp_path)
        await course.run()
        assert course.judged() == right, f"seed {seed}"
