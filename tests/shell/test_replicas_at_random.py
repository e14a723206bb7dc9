"""Three agents of one store on courses drawn from seeds: they die, come back, are taken for dead, hear late, and lose
acknowledgements, while people speak to their runs. In the end every run has ended once, and has paid for nothing twice.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from agent_service.core.waiting import Reserve
from agent_service.run.arrival import Unreadable
from agent_service.run.journal import flaw_in_chain
from groundwork.service.errors import TryAgain
from schemas import subjects
from schemas.events import Signal
from tests.shell.town import Town, founded
from tests.shell.world import FOR_THE_AGENT, Delivery

RESERVE = Reserve(tokens=70, cost_usd=0.01)
AGENTS = "abc"
RUNS = 3
ACTS = 120
SEEDS = 20


class Course:
    """What happens to a town, by the numbers of one seed."""

    def __init__(self, city: Town, seed: int) -> None:
        self.city = city
        self.draw = random.Random(seed)  # noqa: S311 # a seed, not a secret
        self.deaths = 0
        self.said = 0

    async def run(self) -> None:
        for name in "xyz"[:RUNS]:
            self.city["a"].start(name=name)
        acts: dict[Callable[[], Awaitable[None]], int] = {
            self.a_message: 40,
            self.time: 10,
            self.a_beginning: 12,
            self.a_look: 8,
            self.a_death: 3,
            self.a_return: 6,
            self.a_mistaken_death: 2,
            self.deafness: 6,
            self.a_lost_word: 4,
            self.somebody_speaks: 3,
        }
        for act in self.draw.choices(list(acts), list(acts.values()), k=ACTS):
            await act()
            for _ in range(self.draw.randrange(12)):
                await asyncio.sleep(0)

    async def end(self) -> None:
        """Everybody is back, and nothing more befalls them."""
        for name in AGENTS:
            self.city.shared.members[name].deaf = False
            if self.city.shared.members[name].fenced or name not in self.city.shared.live:
                await self.city.dies(name)
                self.city.begins_again(name)
        for _ in range(200):
            for name in AGENTS:
                await self._begun(name)
                await self.city[name].look()
            for delivery in list(self.city.bus.unacknowledged):
                self._deliver(delivery)
            await self._quiet()
            if all(run.final for run in await self.city["a"].family()) and not self.city.bus.unacknowledged:
                return
            self.city["a"].clock.advance(seconds=1)
            await self._timers()
        raise AssertionError([(run.run_id, run.waiting) for run in await self.city["a"].family() if not run.final])

    async def a_message(self) -> None:
        if self.city.bus.unacknowledged:
            self._deliver(self.draw.choice(self.city.bus.unacknowledged))

    async def time(self) -> None:
        self.city["a"].clock.advance(seconds=0.5)
        await self._timers()

    async def a_beginning(self) -> None:
        await self._begun(self._somebody())

    async def a_look(self) -> None:
        await self.city[self._somebody()].look()

    async def a_death(self) -> None:
        if len(self.city.shared.live) > 1:
            name = self.draw.choice(self.city.shared.live)
            self.deaths += 1
            await self.city.dies(name)
            if self.draw.random() < 0.3:  # it was back before anybody knew
                self.city.begins_again(name)
                await self.city[name].look()

    async def a_return(self) -> None:
        for name in sorted(set(AGENTS) - set(self.city.shared.live)):
            self.deaths += 1
            await self.city.dies(name)
            self.city.begins_again(name)
            await self.city[name].look()

    async def a_mistaken_death(self) -> None:
        """It lives, and may even store something yet."""
        if len(self.city.shared.live) > 1:
            name = self.draw.choice(self.city.shared.live)
            self.city.shared.live.remove(name)
            self.city.shared.members[name].fenced = self.draw.random() < 0.5
            self.deaths += 1

    async def deafness(self) -> None:
        member = self.city.shared.members[self._somebody()]
        member.deaf = not member.deaf

    async def a_lost_word(self) -> None:
        self.city.shared.members[self._somebody()].loses_word()

    async def somebody_speaks(self) -> None:
        name = self._somebody()
        for run in (await self.city[name].family())[:1]:
            self.said += 1
            signal = Signal(run_id=run.run_id, signal_id=f"s{self.said}", kind="message", message="mind the gap")
            self.city[name].begin(self._speak(name, signal))

    async def _speak(self, name: str, signal: Signal) -> None:
        agent = self.city[name]
        try:
            await agent.intake.follow(await agent.intake.signal(signal, by="ann"))
        except TryAgain:
            """Whoever spoke is told so."""

    async def _begun(self, name: str) -> None:
        agent = self.city[name]
        for run_id in await agent.store.queued(10):
            agent.begin(self._first_turn(name, run_id))

    async def _timers(self) -> None:
        for name in self.city.shared.live:
            agent = self.city[name]
            await agent.recovering.fire_due(agent.clock.now())

    async def _first_turn(self, name: str, run_id: str) -> None:
        try:
            await self.city[name].intake.begin(run_id)
        except TryAgain:
            """It is found again."""

    def _deliver(self, delivery: Delivery) -> None:
        if delivery.subject.startswith(subjects.TOOL_REQUEST):
            self.city.gateway.handle(delivery)
            self._acknowledge(delivery)
        elif delivery.subject in FOR_THE_AGENT:
            name = self._somebody()
            self.city[name].begin(self._taken(name, delivery))
        else:
            self._acknowledge(delivery)

    async def _taken(self, name: str, delivery: Delivery) -> None:
        agent = self.city[name]
        arrival = agent.arrival(self.city.bus.unacknowledged.index(delivery))
        try:
            await agent.intake.receive(arrival)
        except (TryAgain, Unreadable):
            return
        if not self.city.shared.members[name].fenced:
            self._acknowledge(delivery)

    def _acknowledge(self, delivery: Delivery) -> None:
        if delivery in self.city.bus.unacknowledged:
            self.city.bus.unacknowledged.remove(delivery)

    async def _quiet(self) -> None:
        while tasks := [self.city[name].in_hand.pop() for name in AGENTS if self.city[name].in_hand]:
            await asyncio.gather(*tasks, return_exceptions=True)

    def _somebody(self) -> str:
        return self.draw.choice(self.city.shared.live)


async def check(course: Course) -> None:
    city = course.city
    runs = await city["a"].family()
    told = Counter(
        (delivery.subject, key.split(":")[2])
        for key, delivery in city.bus.published.items()
        if delivery.subject in subjects.ENDINGS
    )
    made: Counter[tuple[str, int]] = Counter()
    for agent in city.agents.values():
        made += agent.mind.calls
    assert len(runs) == RUNS
    assert sorted(run for _, run in told) == sorted(run.run_id for run in runs)
    assert set(told.values()) == {1}
    for run in runs:
        entries = await city["a"].store.entries(run.run_id)
        reserved = Counter(getattr(e.decoded(), "call", 0) for e in entries if e.kind == "CallReserved")
        assert flaw_in_chain(entries) is None
        assert all(made[run.run_id, call] <= number for call, number in reserved.items())
        assert sum(made[run.run_id, call] for call in reserved) <= run.spent.calls + run.spent.lost_calls
    assert not course.deaths or max(made.values()) <= 1 + course.deaths
    assert course.deaths or max(made.values()) == 1
    for name in AGENTS:
        assert await city[name].has_done_all()


async def test_every_run_ends_once_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    for seed in range(SEEDS):
        try:
            async with founded(tmp_path / str(seed), AGENTS, reserve=RESERVE) as city:
                course = Course(city, seed)
                await course.run()
                await course.end()
                await check(course)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
