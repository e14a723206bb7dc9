"""Gateways at work on the same calls and deliveries, their steps interleaved as a seed says, while words of the bus are
lost and gateways are stopped, taken for dead, and go on: what must never happen does not."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import AlreadyStarted, Answer, Intent, Receipt
from ductile_gateway.store.stores import Stores
from groundwork.service.errors import TryAgain
from tests.gateway.parts import NOON
from tests.ledger.crowd import Crowd
from tests.ledger.test_ledger import an_answer, an_intent, named
from tests.ledger.test_outbox import a_delivery

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
