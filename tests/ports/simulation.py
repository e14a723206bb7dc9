"""Members of a shared store under a seeded scheduler: everything that waits goes on in an order that the seed gives.

What is under test is SharedStore as it is, its statements and its facts. Simulated are the log with the ways to it,
each member's copy, its lease, and an agent as far as the store concerns it: it takes messages, decides on what it
remembers or loads, commits, performs, and tells. On the way answers are lost, facts arrive late or never, copies lag,
members die, come back with their copy or without, or are taken for dead while they still run.
"""

import asyncio
import itertools
import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar
from zlib import crc32

from agent_service.core.decide import decide
from agent_service.core.events import Event, RunStarted, SignalReceived
from agent_service.core.waiting import Status
from agent_service.errors import VersionMoved
from agent_service.run.journal import Commit, Entry, Run, commit_of, flaw_in_chain
from agent_service.run.moments import Elsewhere
from agent_service.run.ports import Wake
from agent_service.store.rows import entry_of
from agent_service.store.shared_log.applying import Applying
from agent_service.store.shared_log.store import SharedStore
from agent_service.store.sql.database import MIGRATIONS, load_queries
from groundwork.nats.leases.lease import Taken
from groundwork.nats.shared_log import Fact, Moved
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile
from schemas.events import Signal
from tests.kit.runs import NOON, SEARCH, SECOND, accepted, run_id

T = TypeVar("T")

NAMES = ("a", "b", "c")
SPOKEN_TO, WORDS = run_id(3), 2
MOST_STEPS = 4000
SETTLED = 3
"""Turns of the loop until nothing goes on by itself."""


class Stuck(AssertionError): ...


class Scheduler:
    """Who waits in `pause` goes on when its turn has come."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a seed is to give the same order again
        self._waiting: list[asyncio.Future[None]] = []

    async def pause(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    async def run_until(self, over: Callable[[], bool]) -> None:
        for _ in range(MOST_STEPS):
            for _ in range(SETTLED):
                await asyncio.sleep(0)
            self._waiting = [turn for turn in self._waiting if not turn.done()]
            if over():
                return
            if not self._waiting:
                raise Stuck("nothing can go on")
            self._waiting.pop(self.random.randrange(len(self._waiting))).set_result(None)
        raise Stuck("it goes on for ever")


class Database(SqliteFile):
    """In memory, and without threads."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        for script in sorted(MIGRATIONS.iterdir(), key=lambda one: one.name):
            self._connection.executescript(script.read_text())

    async def write(self, work: Callable[[sqlite3.Connection], T], *, makes_room: bool = False) -> T:
        del makes_room
        self._connection.execute("BEGIN")
        done = work(self._connection)
        self._connection.execute("COMMIT")
        return done

    def look_up(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    async def read(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        return self.look_up(statement, values)

    def empty(self) -> None:
        Applying().forget(self._connection)
        self._connection.execute("DELETE FROM replica")


class Databases:
    """Used again and again: SQLite takes longer to prepare its statements than to carry them out."""

    def __init__(self) -> None:
        self._free: list[Database] = []

    def take(self) -> Database:
        return self._free.pop() if self._free else Database()

    def give_back(self, database: Database) -> None:
        database.empty()
        self._free.append(database)


@dataclass
class Log:
    """The stream: winners only, in one order. `faulty` while answers may be lost."""

    scheduler: Scheduler
    facts: list[Fact] = field(default_factory=list)
    faulty: bool = True
    on_the_way: list[tuple[str, bytes, int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.moved = asyncio.Event()

    def newest_of(self, subject: str) -> Fact | None:
        return next((fact for fact in reversed(self.facts) if fact.subject == subject), None)

    def store(self, subject: str, body: bytes, after: int | None) -> int:
        newest = self.newest_of(subject)
        if after is not None and after != (newest.seq if newest else 0):
            raise Moved(subject)
        self.facts.append(Fact(seq=len(self.facts) + 1, subject=subject, body=body, headers={}, at=NOON))
        self.moved.set()
        self.moved = asyncio.Event()
        return len(self.facts)

    def deliver_late(self) -> None:
        some, self.on_the_way = self.on_the_way, []
        for subject, body, after in some:
            with suppress(Moved):
                self.store(subject, body, after)

    # what a member sees

    async def append(self, subject: str, body: bytes, *, after: int | None) -> int:
        await self.scheduler.pause()
        if not self.faulty or not self.scheduler.chance(5):
            return self.store(subject, body, after)
        match self.scheduler.random.randrange(4):
            case 0:  # stored, and no answer
                self.store(subject, body, after)
                await self.scheduler.pause()
            case 1:  # on its way for a while
                self.on_the_way.append((subject, body, after))
            case 2:  # stored, and asked once more: whether it is the newest still decides
                seq = self.store(subject, body, after)
                await self.scheduler.pause()
                newest = self.newest_of(subject)
                if after is None or (newest and newest.seq == seq):
                    return seq
                raise Moved(subject)
        raise TryAgain("no answer")

    async def newest(self, subject: str) -> Fact | None:
        await self.scheduler.pause()
        if self.faulty and self.scheduler.chance(20):
            raise TryAgain("no answer")
        return self.newest_of(subject)

    async def end(self) -> int:
        await self.scheduler.pause()
        return len(self.facts)

    async def purge(self, subject: str, before: int | None = None) -> None:
        raise NotImplementedError


class Copy:
    """Applies what the stream has, some facts at a time."""

    def __init__(self, log: Log, database: Database) -> None:
        self._log = log
        self._database = database
        self.applying = Applying()
        self.store: SharedStore | None = None
        ((self.reached,),) = database.look_up("SELECT coalesce(max(reached), 0) FROM replica")
        self._moved = asyncio.Event()

    async def run(self) -> None:
        while True:
            while len(self._log.facts) <= self.reached:
                await self._log.moved.wait()
            await self._log.scheduler.pause()
            some = self._log.facts[self.reached : self.reached + self._log.scheduler.random.randint(1, 4)]
            await self._database.write(partial(self._apply, some))
            if self._log.scheduler.chance(4):
                await self._log.scheduler.pause()  # written, and nobody told yet
            if self.store:
                self.store.applied(some)
            self.reached = some[-1].seq
            self._moved.set()
            self._moved = asyncio.Event()

    async def wait(self, seq: int) -> None:
        while self.reached < seq:
            await self._moved.wait()
            if self._log.faulty and self._log.scheduler.chance(20):
                raise TryAgain("the copy is behind")

    async def wait_patiently(self, seq: int) -> None:
        while self.reached < seq:
            await self._moved.wait()

    def _apply(self, facts: Sequence[Fact], connection: sqlite3.Connection) -> None:
        for fact in facts:
            self.applying.apply(connection, fact)
        connection.execute("DELETE FROM replica")
        connection.execute("INSERT INTO replica (created, reached, at) VALUES ('', ?, '')", (facts[-1].seq,))


class View:
    """Whom a member believes to live."""

    def __init__(self, me: str) -> None:
        self.me = me
        self.live = frozenset(NAMES)

    def mine(self, owner: str, key: str) -> bool:
        heir = max(self.live, key=lambda member: crc32(f"{member} {key}".encode()))
        return owner == self.me or (owner not in self.live and heir == self.me)


@dataclass(frozen=True, eq=False)
class Message:
    """A wake, or something said to a run. It is somebody's until it is acknowledged."""

    run_id: str
    wake: Commit | None = None
    event: SignalReceived | None = None


class Process:
    """One life of a member."""

    def __init__(self, world: "World", me: str, database: Database) -> None:
        self.me, self.view = me, View(me)
        self.taken = ""
        self.ready = False
        self.performed: Counter[tuple[str, int]] = Counter()
        self.in_hand: list[Message] = []
        self._world = world
        self._database = database
        self.copy = Copy(world.log, self._database)
        standing_on = self, self.copy, self.view
        self.store = SharedStore(self._database, standing_on, self.copy.applying, held=self._held)
        self.store.on_elsewhere = self._hear
        self.copy.store = self.store
        self._known: dict[str, Run] = {}
        self._locks = defaultdict[str, asyncio.Lock](asyncio.Lock)
        self._to_perform: set[tuple[str, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.begin(self.copy.run())
        self.begin(self._start())

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def die(self) -> Database:
        self.stop()
        return self._database

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def take(self, message: Message) -> None:
        self.in_hand.append(message)
        self.begin(self._handle(message))

    async def look(self) -> None:
        while not self.ready:
            await self._world.scheduler.pause()
        for run in await self.store.untold(100):
            self._perform_soon(run.run_id, run.seqs)

    async def tell(self) -> None:
        with suppress(TryAgain):
            await self.store.tell()

    def told_all(self) -> bool:
        left = self._database.look_up("SELECT 1 FROM runs WHERE told < version")
        return not left and self.copy.reached == len(self._world.log.facts)

    def journal(self) -> list[tuple[str, int, str, str]]:
        rows = self._database.look_up("SELECT run_id, seq, hash, by FROM journal ORDER BY position")
        return [(of_run, seq, head.hex(), by) for of_run, seq, head, by in rows]

    def entries(self, of_run: str) -> list[Entry]:
        return [entry_of(of_run, row) for row in self._database.look_up(load_queries()["entries"], (of_run, 0, -1))]

    def skipped(self) -> list[str]:
        return [why for _, _, why, _ in self._database.look_up(load_queries()["skipped"])]

    # the log, as its store sees it

    async def append(self, subject: str, body: bytes, *, after: int | None) -> int:
        if self.taken:
            self._world.errors.append(f"{self.me} stores though it was taken for dead")
        return await self._world.log.append(subject, body, after=after)

    async def newest(self, subject: str) -> Fact | None:
        return await self._world.log.newest(subject)

    async def end(self) -> int:
        return await self._world.log.end()

    async def purge(self, subject: str, before: int | None = None) -> None:
        raise NotImplementedError

    async def _start(self) -> None:
        await self.copy.wait_patiently(len(self._world.log.facts))
        await self.store.begin()
        self.ready = True
        await self.look()

    async def _held(self) -> None:
        if self.taken:
            raise Taken(self.taken)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._world.errors.append(f"{self.me}: {error!r}")

    def _hear(self, told: Elsewhere) -> None:
        self._known.pop(told.run_id, None)
        if told.by == self.me:
            self._perform_soon(told.run_id, (told.entry.seq,))

    def _perform_soon(self, of_run: str, seqs: Iterable[int]) -> None:
        for seq in seqs:
            if (of_run, seq) not in self._to_perform:
                self._to_perform.add((of_run, seq))
                self.begin(self._perform(of_run, seq))

    async def _perform(self, of_run: str, seq: int) -> None:
        await self._world.scheduler.pause()
        if self.taken:
            return
        self.performed[of_run, seq] += 1
        self._world.performed[of_run, seq] += 1
        if seq == 1:
            await self._begin_run(of_run)
        self._to_perform.discard((of_run, seq))
        self.store.told(of_run, seq, since=seq)

    async def _begin_run(self, of_run: str) -> None:
        while not self.taken:
            with suppress(TryAgain):
                await self._take(of_run, RunStarted(at=NOON + 30 * SECOND, skills=(SEARCH,)))
                return
            await self._world.scheduler.pause()

    async def _handle(self, message: Message) -> None:
        done = False
        with suppress(TryAgain):
            if self.ready and message.wake:
                await self._accept(message.wake)
                done = True
            elif self.ready and message.event:
                done = await self._take(message.run_id, message.event)
        self.in_hand.remove(message)
        self._world.settled(message, done=done)

    async def _accept(self, wake: Commit) -> None:
        named = Wake(wake_id=wake.state.wake_id, digest="digest")
        found = await self.store.accept(named, wake)
        self._world.answers.setdefault(named.wake_id, set()).add(found)
        if (found, 1, wake.entry.hash, self.me) in self.journal() and (found, 1) not in self.performed:
            self._committed(wake)

    async def _take(self, of_run: str, event: Event) -> bool:
        async with self._locks[of_run]:
            return await self._decide(of_run, event)

    async def _decide(self, of_run: str, event: Event) -> bool:
        while True:
            remembered = self._known.get(of_run)
            run = remembered or await self.store.load(of_run)
            if run is None:
                return True
            if run.state.status is Status.QUEUED and not isinstance(event, RunStarted):
                self._known.pop(of_run, None)
                return False
            transition = decide(run.state, event)
            if transition.ignored and (remembered is None or await self.store.is_current(of_run, run.state.version)):
                return True
            if transition.ignored:
                self._known.pop(of_run, None)
            elif await self._commit(commit_of(run, event, transition)):
                return True

    async def _commit(self, commit: Commit) -> bool:
        attempt = commit.entry.hash, self.me
        self._world.attempts[attempt] += 1
        self._world.refused.discard(attempt)
        try:
            await self.store.commit(commit)
        except VersionMoved:
            self._known.pop(commit.entry.run_id, None)
            if self._world.attempts[attempt] == 1:  # an earlier one may be there
                self._world.refused.add(attempt)
            return False
        self._committed(commit)
        return True

    def _committed(self, commit: Commit) -> None:
        entry = commit.entry
        self._world.committed.add((entry.run_id, entry.seq, entry.hash, self.me))
        self._known[entry.run_id] = Run(state=commit.state, head=entry.hash)
        self._perform_soon(entry.run_id, (entry.seq,))


@cache
def messages() -> tuple[Message, ...]:
    """Two requests for one run, one for another, and what is said to that."""
    wakes = (accepted(1, wake_id="w"), accepted(2, wake_id="w"), accepted(3, wake_id="v"))
    said = [Signal(run_id=SPOKEN_TO, signal_id=f"s{n}", kind="message", message=f"word {n}") for n in range(WORDS)]
    events = (SignalReceived(at=NOON + 60 * SECOND, signal=signal) for signal in said)
    return (
        *(Message(wake.state.run_id, wake=wake) for wake in wakes),
        *(Message(SPOKEN_TO, event=event) for event in events),
    )


class World:
    """A store that three members share, and what becomes of what they are asked."""

    def __init__(self, seed: int, databases: Databases) -> None:
        self.scheduler = Scheduler(seed)
        self.log = Log(self.scheduler)
        self.answers: dict[str, set[str]] = {}
        self.committed: set[tuple[str, int, str, str]] = set()
        self.refused: set[tuple[str, str]] = set()
        self.attempts: Counter[tuple[str, str]] = Counter()
        self.performed: Counter[tuple[str, int]] = Counter()
        self.errors: list[str] = []
        self.lives: list[Process] = []
        self._pending = list(messages())
        self._repeats: Counter[Message] = Counter()
        self._live: dict[str, Process] = {}
        self._dying: list[Process] = []
        self._dead: dict[str, Database] = {}
        self._databases = databases
        for name in NAMES:
            self._start(name, databases.take())

    async def play(self) -> None:
        """Until all is said and done, with faults at first. Raises Stuck."""
        chaos = asyncio.get_running_loop().create_task(self._chaos())
        try:
            await self.scheduler.run_until(self._is_quiet)
        finally:
            chaos.cancel()
            for process in self.lives:
                process.stop()
            await asyncio.sleep(0)

    def settled(self, message: Message, *, done: bool) -> None:
        again = self.log.faulty and self._repeats[message] < 2 and self.scheduler.chance(4)
        if again or not done:
            self._repeats[message] += 1
            self._pending.append(message)

    def close(self) -> None:
        for database in (*self._dead.values(), *(process.die() for process in (*self._live.values(), *self._dying))):
            self._databases.give_back(database)

    def wrong(self) -> list[str]:
        """What a store must not do, after `play`."""
        return [*self.errors, *itertools.chain.from_iterable(rule(self) for rule in RULES)]

    @property
    def survivor(self) -> Process:
        return next(iter(self._live.values()))

    @property
    def survivors(self) -> Iterable[Process]:
        return self._live.values()

    def _is_quiet(self) -> bool:
        busy = self.log.faulty or self._pending or any(process.in_hand for process in self._live.values())
        return not busy and all(process.ready and process.told_all() for process in self._live.values())

    async def _chaos(self) -> None:
        for _ in range(self.scheduler.random.randint(5, 25)):
            await self.scheduler.pause()
            self._hand_out()
            what = self.scheduler.random.choice(CHAOS)
            if what:
                what(self)
        self._calm()
        while True:
            await self.scheduler.pause()
            self._hand_out()
            if self.scheduler.chance(4):
                self._tell()
                self._look()

    def _hand_out(self) -> None:
        ready = [message for message in self._pending if message.wake or SPOKEN_TO in self.answers.get("v", ())]
        if ready:
            self._pending.remove(message := self.scheduler.random.choice(ready))
            self._live[self.scheduler.random.choice(sorted(self._live))].take(message)

    def _start(self, name: str, database: Database) -> None:
        self._live[name] = process = Process(self, name, database)
        self.lives.append(process)
        for one in self._live.values():
            one.view.live |= {name}
        process.view.live = frozenset(self._live)

    def _kill(self) -> None:
        if len(self._live) > 1:
            self._bury(self._live.pop(self.scheduler.random.choice(sorted(self._live))))

    def _take_for_dead(self) -> None:
        if len(self._live) > 1:
            process = self._live.pop(self.scheduler.random.choice(sorted(self._live)))
            process.taken = "another has taken what was its"
            self._dying.append(process)
            self._miss(process.me)

    def _bury(self, process: Process) -> None:
        self._dead[process.me] = process.die()
        self._pending += process.in_hand
        process.in_hand.clear()
        self._miss(process.me)

    def _bury_one(self) -> None:
        if self._dying:
            self._bury(self._dying.pop())

    def _miss(self, name: str) -> None:
        for other in self._live.values():
            if self.scheduler.chance(2):
                other.view.live -= {name}
                other.begin(other.look())

    def _come_back(self) -> None:
        if self._dead:
            name, database = self._dead.popitem()
            if self.scheduler.chance(2):
                self._databases.give_back(database)
                database = self._databases.take()
            self._start(name, database)

    def _tell(self) -> None:
        for process in self._live.values():
            process.begin(process.tell())

    def _look(self) -> None:
        for process in self._live.values():
            process.begin(process.look())

    def _calm(self) -> None:
        """No faults from now on: who is dead stays dead, and all know it."""
        self.log.faulty = False
        self.log.deliver_late()
        while self._dying:
            self._bury_one()
        for process in self._live.values():
            process.view.live = frozenset(self._live)


CHAOS: Sequence[Callable[[World], object] | None] = (
    *[None] * 12,
    World._kill,
    World._take_for_dead,
    World._bury_one,
    World._bury_one,
    World._come_back,
    World._come_back,
    World._tell,
    World._tell,
    World._look,
    lambda world: world.log.deliver_late(),
    lambda world: world.log.deliver_late(),
)


def one_run_for_one_wake(world: World) -> Iterable[str]:
    return (f"wake {wake} names {sorted(runs)}" for wake, runs in world.answers.items() if len(runs) != 1)


def every_word_is_heard_once(world: World) -> Iterable[str]:
    heard = [entry.decoded() for entry in world.survivor.entries(SPOKEN_TO) if entry.kind == "SignalReceived"]
    words = Counter(event.signal.signal_id for event in heard if isinstance(event, SignalReceived))
    return (f"{word} is heard {words[word]} times" for word in (f"s{n}" for n in range(WORDS)) if words[word] != 1)


def journals_are_chains_and_the_same_everywhere(world: World) -> Iterable[str]:
    first = world.survivor.journal()
    runs = {of_run for of_run, *_ in first}
    yield from filter(None, (flaw_in_chain(world.survivor.entries(of_run)) for of_run in sorted(runs)))
    for process in world.survivors:
        yield from process.skipped()
        if process.journal() != first:
            yield f"{process.me} has another journal"


def what_was_acknowledged_is_there_and_what_was_refused_is_not(world: World) -> Iterable[str]:
    stored = set(world.survivor.journal())
    yield from (f"lost: entry {seq} of {of_run} by {me}" for of_run, seq, _, me in world.committed - stored)
    there = {(head, by) for _, _, head, by in stored}
    yield from (f"refused and stored: {head[:8]} by {me}" for head, me in world.refused & there)


def all_is_performed_and_by_nobody_twice_in_one_life(world: World) -> Iterable[str]:
    for of_run, seq, *_ in world.survivor.journal():
        if not world.performed[of_run, seq]:
            yield f"entry {seq} of {of_run} is performed by nobody"
    for process in world.lives:
        yield from (f"{process.me} performs {what} {n} times" for what, n in process.performed.items() if n > 1)


RULES: Sequence[Callable[[World], Iterable[str]]] = (
    one_run_for_one_wake,
    every_word_is_heard_once,
    journals_are_chains_and_the_same_everywhere,
    what_was_acknowledged_is_there_and_what_was_refused_is_not,
    all_is_performed_and_by_nobody_twice_in_one_life,
)


async def wrong_with(seeds: Iterable[int]) -> str:
    """What went wrong with the first of the seeds with which something did; empty for nothing."""
    databases = Databases()
    for seed in seeds:
        world = World(seed, databases)
        try:
            await world.play()
        except Stuck as stuck:
            return f"seed {seed}: {stuck} {world.errors}"
        if found := world.wrong():
            return f"seed {seed}: {'; '.join(found)}"
        world.close()
    return ""
