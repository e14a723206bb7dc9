"""Several agents of one store, bus and gateway: each a small world of its own in all else, minds too."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, Literal

from agent_service.background import Background, to_its_end
from agent_service.core.state import RunState
from agent_service.run.invalidation import Overtaken
from schemas import subjects
from schemas.events import Cancel, Signal
from tests.kit.sharing_a_log import LogMember, SharedLog, members_of_a_log
from tests.kit.waiting import until
from tests.shell.world import World


class Hands(Background):
    """What an agent begins in the background ends with it, too."""

    def __init__(self, group: asyncio.TaskGroup, in_hand: list[asyncio.Task[Any]]) -> None:
        super().__init__(group)
        self._group = group
        self._in_hand = in_hand

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self._group.create_task(to_its_end(work, "work"))
        task.add_done_callback(lambda _: work.close())
        self._in_hand.append(task)


class Replica(World):
    """One agent of a town, with what it has in hand."""

    member: LogMember

    def set_up(self, member: LogMember, group: asyncio.TaskGroup) -> None:
        self.member = member
        self.in_hand: list[asyncio.Task[Any]] = []
        background = Hands(group, self.in_hand)
        self.recovering, self.switch = self.recovery(background), self.halting(background)
        overtaken = Overtaken(member.me, self.turns, self.thinker, self.faulty, self.recovering, background)
        member.listen(overtaken.hear)

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Have `work` in hand, which ends with this agent if it dies."""
        task = asyncio.ensure_future(work)
        self.in_hand.append(task)
        return task

    async def take(self, subject: str) -> None:
        """The oldest message of `subject` that is not acknowledged, and what it begins; then it is acknowledged."""
        delivery = next(each for each in self.bus.unacknowledged if each.subject == subject)
        await self.receive(self.bus.unacknowledged.index(delivery))
        self.bus.unacknowledged.remove(delivery)

    async def say(self, signal_id: str, kind: Literal["message", "answer"] = "message") -> None:
        """Somebody says something to the run, through this agent."""
        run = await self.state()
        signal = Signal(run_id=run.run_id, signal_id=signal_id, kind=kind, message="mind the gap")
        await self.intake.follow(await self.intake.signal(signal, by="ann"))

    async def cancel(self) -> None:
        """Somebody cancels the run, through this agent."""
        cancel = Cancel(run_id=(await self.state()).run_id)
        await self.intake.follow(await self.intake.cancel(cancel, by="ann"))

    async def look(self) -> None:
        """Find what is to be done, and begin to do it."""
        await self._tell()
        await self.member.caught_up()
        await self.recovering.look()
        self.recovering.try_again()

    async def has_done_all(self) -> bool:
        """Whether nothing is left that this agent sees to."""
        await self._tell()
        await self.member.caught_up()
        return not await self.member.untold(10) and not self.turns.undone.left

    async def _tell(self) -> None:
        self.faulty.write_told()
        await self.member.tell()


class Town:
    def __init__(self, group: asyncio.TaskGroup, shared: SharedLog, **world: Any) -> None:
        self._group = group
        self.shared = shared
        self.agents = {name: Replica(store=member, **world) for name, member in self.shared.members.items()}
        first = next(iter(self.agents.values()))
        self.bus, self.gateway = first.bus, first.gateway
        for name, agent in self.agents.items():
            agent.bus, agent.gateway, agent.clock = first.bus, first.gateway, first.clock
            agent.capabilities = first.capabilities
            agent.build_anew()
            self.set_up(name)

    def set_up(self, name: str) -> None:
        """After it was built."""
        self.agents[name].set_up(self.shared.members[name], self._group)

    def __getitem__(self, name: str) -> Replica:
        return self.agents[name]

    async def dies(self, name: str) -> None:
        """It is gone, with all that it had in hand and in memory, and was found dead."""
        self.shared.members[name].fenced = True
        for task in self.agents[name].in_hand:
            task.cancel()
        await asyncio.gather(*self.agents[name].in_hand, return_exceptions=True)
        self.agents[name].faulty.forget_told()
        if name in self.shared.live:
            self.shared.live.remove(name)

    def begins_again(self, name: str) -> None:
        """The same member, as a new process."""
        if name not in self.shared.live:
            self.shared.live.append(name)
        self.shared.members[name].fenced = self.shared.members[name].deaf = False
        self.agents[name].build_anew()
        self.set_up(name)

    async def state(self) -> RunState:
        return await next(iter(self.agents.values())).state()

    async def kinds(self) -> list[str]:
        """Of the entries of the run that was asked for."""
        store = next(iter(self.agents.values())).store
        return [entry.kind for entry in await store.entries((await self.state()).run_id)]

    async def who(self, kind: str) -> list[str]:
        """Who has committed the run's entries of this kind."""
        by = await self.shared.who((await self.state()).run_id)
        return [name for name, each in zip(by, await self.kinds(), strict=True) if each == kind]

    @property
    def calls(self) -> dict[str, int]:
        """How many model calls each has made."""
        return {name: agent.mind.calls.total() for name, agent in self.agents.items()}

    def play(self) -> None:
        """The gateway takes all requests."""
        requests = [each for each in self.bus.unacknowledged if each.subject.startswith(subjects.TOOL_REQUEST)]
        for delivery in requests:
            self.gateway.handle(delivery)
            self.bus.unacknowledged.remove(delivery)

    async def to_its_end(self, *names: str) -> RunState:
        """The agents take messages in turn, until the run has ended."""
        turn = 0
        while not (await self.state()).final:
            await until(lambda: self.bus.unacknowledged)
            self.play()
            agent, turn = self.agents[names[turn % len(names)]], turn + 1
            for delivery in [d for d in self.bus.unacknowledged if d.subject == subjects.TOOL_RESULT][:1]:
                await agent.take(delivery.subject)
        return await self.state()


@contextlib.asynccontextmanager
async def founded(folder: Path, names: str = "ab", **world: Any) -> AsyncIterator[Town]:
    """A town of agents named by the letters of `names`, with the real store: a log, of which each has a copy that lags.

    What goes on in the background ends with it.
    """
    async with members_of_a_log(names, folder) as shared, asyncio.TaskGroup() as group:
        yield Town(group, shared, **world)
