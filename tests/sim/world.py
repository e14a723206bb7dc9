"""The world: both services unchanged, in processes of virtual time, and everything they talk to."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

from ductile_gateway.store.opening import Mark
from ductile_gateway.store.rows import columns_in, put, subject_of
from schemas import keys, subjects
from tests.sim.course import Course
from tests.sim.invariants import GO_ON, SECRET, STOP, Invariants, Violation, distinct
from tests.sim.machines.boundary import Boundary
from tests.sim.machines.network import Network
from tests.sim.machines.time import Process, Scheduler, Stuck, discarding
from tests.sim.model_policy import thinks
from tests.sim.record import AGAIN, Message, Record
from tests.sim.servers.callers import RECEIVER, Callers, Post, Receiver
from tests.sim.servers.ductile import Ductile
from tests.sim.servers.model import ModelServer
from tests.sim.servers.nats_server import NatsServer, Subscription
from tests.sim.servers.streams import StoredMessage, head_of, headers_of
from tests.sim.services import Services, configurations

T = TypeVar("T")
Json = dict[str, Any]
READY_S, PERSON_S, ANSWERED_S, SETTLES_S = 0.4, 0.4, 2.0, 0.3
"""Seconds until the services are ready, until a person answers, until a client of the bus repeats a request, and of
watching for late messages after the end."""


class World:
    """One world of one seed. `play` runs the course and raises Violation, or Stuck if it never ends."""

    def __init__(self, course: Course, seed: int = 1, *, dies_at: int | None = None) -> None:
        """Waits until the services are ready. `dies_at` is the number of the effect, counted from here, before which
        its process dies."""
        self.course = course
        self._dies_at = dies_at
        self.scheduler = Scheduler(seed)
        self.boundary = Boundary(self.scheduler, on_death=self._died)
        self.network = Network(self.boundary)
        self.record = Record()
        self.invariants = Invariants(self.record, course)
        self.violation: Violation | None = None
        self.bus = NatsServer(self.boundary)
        self.ductile = Ductile(self.scheduler, course.plugins, SECRET)
        self.model = ModelServer(self.scheduler, thinks(course.chooses))
        self._watch()
        self.network.serve("bus", self.bus)
        self.network.serve("ductile", self.ductile.server)
        self.network.serve("model", self.model.server)
        self.services = Services(course, self.network, self.boundary)
        self._news = True
        """True if something happened since the last check for the end."""
        self.callers = Callers(
            self.scheduler, self.network, self.services.at, on_sent=self._sent, on_answer=self._answered
        )
        self.receiver = Receiver(on_received=self._received)
        self.network.serve(RECEIVER, self.receiver.server)
        self._kept: list[StoredMessage] = []
        self._deeds_left = 0
        self._backup: tuple[datetime, dict[str, dict[str, bytes]]] | None = None
        self._begin()

    def play(self) -> None:
        """Plays the course to quiescence and checks its endings."""
        wanted = Counter(self.course.ends)
        self._play(lambda: Counter(message.subject for message in distinct(self.record.endings)) >= wanted)

    def play_on(self) -> None:
        """Plays the course until every run has ended, however."""
        self._play(self._all_have_ended)

    def start(self) -> None:
        for number, payload in enumerate(self.course.starts, start=1):
            self.say(subjects.START, payload, keys.start(str(number)))
        for post in self.course.posts:
            self.callers.post(post)
        for at, deed in self.course.meanwhile:
            self._deeds_left += 1
            self.scheduler.after(at, partial(self._do, deed))

    def until(self, fact: Callable[[], object], within_s: float = 60.0) -> None:
        """Runs until `fact` is true. Raises Violation, and Stuck if it does not become true."""
        came_true = self.scheduler.run_until(lambda: bool(fact() or self.violation), within_s=within_s)
        if self.violation:
            raise self.violation
        if not came_true:
            raise Stuck(self._standing())

    def passes(self, seconds: float) -> None:
        self.scheduler.run_until(lambda: False, within_s=seconds)

    def _play(self, over: Callable[[], bool]) -> None:
        self.start()
        is_over = self.scheduler.run_until(lambda: self._is_over(over), within_s=self.course.lasts_s)
        if not self.violation:
            self.scheduler.run_until(lambda: self.violation is not None, within_s=SETTLES_S)
        if self.violation:
            raise self.violation
        if not is_over:
            raise Violation("nothing accepted is stranded", self._standing())
        self.invariants.at_the_end()

    def _begin(self) -> None:
        self._set_up()
        self.services.begin()
        self.scheduler.run_until(lambda: False, within_s=READY_S)
        self.boundary.effects.clear()
        self.boundary.dies_at = self._dies_at

    # what happens to it

    def say(self, subject: str, payload: Json, key: str) -> None:
        body = json.dumps({"type": subject, "payload": payload, "dedupe_key": key}).encode()
        self.bus.jetstream.put(subject, body, head_of({"Nats-Msg-Id": key}))

    def asks(self, what: str, **body: Any) -> Json:
        """Returns an agent's answer over the bus, or its error. Repeats the request without an answer."""
        heard: list[Json] = []
        client: Any = SimpleNamespace(deliver=lambda _, message: heard.append(json.loads(message.body)))
        inbox = f"_INBOX.{id(client)}"
        self.bus.subscribe(Subscription(client, "1", inbox, ""))
        for _ in range(10):
            self.bus.hand_out(f"{subjects.SERVICE_AGENT}.{what}", json.dumps(body).encode(), inbox)
            if self.scheduler.run_until(lambda: bool(heard), within_s=ANSWERED_S):
                return heard[0]
        raise Stuck(f"no agent answers {what}")

    def status(self) -> Json:
        return self.asks("status", run_id=self.first)

    @property
    def first(self) -> str:
        return self.record.of(subjects.WAKE_ACCEPTED)[0].run_id

    def cancel_all(self) -> None:
        for message in self.record.of(subjects.WAKE_ACCEPTED):
            self._cancel(message.run_id)

    def cancel_first(self) -> None:
        self._cancel(self.first)

    def _cancel(self, run_id: str) -> None:
        self.say(subjects.CANCEL, {"run_id": run_id}, keys.dedupe_key(subjects.CANCEL, run_id))

    def days_pass(self) -> None:
        self.scheduler.skew += 5 * 86400

    def damage(self, which: int) -> None:
        run_id = self.record.of(subjects.WAKE_ACCEPTED)[which].run_id
        runs = self.services.disks["agent"].databases["runs.db"]
        runs.execute("UPDATE runs SET state = '{' WHERE run_id = ?", (run_id,))
        self._kill(self.services.processes["agent"])

    def back_up(self) -> None:
        taken = {name: disk.copied() for name, disk in self.services.disks.items()}
        self._backup = self.scheduler.wall(), taken

    def lose_all(self) -> None:
        """Loses machines and bus. Processes started then have the backup and know that it was restored."""
        assert self._backup
        self.network.cut(lambda _: True)  # before they die: what a dead process had sent would arrive at the new bus
        for process in list(self.services.processes.values()):
            self._kill(process)
        self.bus.jetstream.streams.clear()
        self._set_up()
        taken, disks = self._backup
        for name, databases in disks.items():
            self.services.disks[name].replaced(databases)
        restored = Mark(backup="b1", taken=taken, at=self.scheduler.wall())
        ledger = self.services.disks["gateway"].databases["ledger.db"]
        put(ledger, subject_of(Mark), 1 << 40, columns_in(restored), b"")
        self.invariants.restored()

    def _kill(self, process: Process) -> None:
        process.kill()
        self._died(process)

    def say_all_again(self) -> None:
        """Redelivers all messages to the services under other ids."""
        said = (subjects.START, subjects.TOOL_RESULT, subjects.TOOL_REQUEST)
        for kept in [one for one in self._kept if one.subject.startswith(said)]:
            headers = headers_of(kept.head)
            again = head_of(headers | {"Nats-Msg-Id": f"{AGAIN}{headers['Nats-Msg-Id']}"})
            self.bus.jetstream.put(kept.subject, kept.body, again)

    def lose_next_answer(self) -> None:
        self.ductile.lose_next_answer = True

    def _watch(self) -> None:
        self.bus.jetstream.on_stored = self._stored
        self.ductile.on_relayed = self._received
        self.ductile.jobs.on_run = self._judged(self.record.ran, self.invariants.ran)
        self.model.on_paid = self._judged(self.record.paid, self.invariants.paid)
        self.model.on_lost = self._reply_lost

    def _stored(self, kept: StoredMessage) -> None:
        self._news = True
        if message := self.record.stored(kept):
            self._kept.append(kept)
            self._judge(self.invariants.stored, message)
            if message.subject in (*subjects.ENDINGS, subjects.WAITING):
                self._hears(message)

    def _judged(self, kept: list[T], judge: Callable[[T], None]) -> Callable[[T], None]:
        def happened(what: T) -> None:
            kept.append(what)
            self._judge(judge, what)

        return happened

    def _judge(self, judge: Callable[[T], None], what: T) -> None:
        try:
            judge(what)
        except Violation as violation:
            self.violation = self.violation or violation

    def _hears(self, told: Message) -> None:
        if said := self.course.reacts(told):
            key = keys.dedupe_key(subjects.SIGNAL, told.run_id, signal_id=said["signal_id"])
            payload = {"run_id": told.run_id, **said}
            self.scheduler.after(PERSON_S, lambda: self.say(subjects.SIGNAL, payload, key))

    def _sent(self, post: Post) -> None:
        if post.path == GO_ON:
            self.invariants.halted_at = None

    def _answered(self, post: Post, told: Any) -> None:
        self._news = True
        self._judge(self.invariants.answered, told)
        if post.path == STOP:
            self.invariants.halted_at = self.scheduler.now

    def _received(self, event: Json) -> None:
        self._news = True
        self.record.received.append(event)

    def _reply_lost(self) -> None:
        self.record.interrupted += 1

    def _died(self, process: Process) -> None:
        self.record.deaths.append(process.name)
        self.network.forget(process)
        self.services.start_later(process)

    def _is_over(self, over: Callable[[], bool]) -> bool:
        if self.violation:
            return True
        self.services.look_after()
        if not self._news:
            return False
        self._news = False
        all_received = len(self.record.received) >= self.course.tells
        return all_received and not (self.callers.waiting or self._deeds_left) and over()

    def _do(self, deed: Callable[[Any], object]) -> None:
        self._news = True
        self._deeds_left -= 1
        deed(self)

    def _all_have_ended(self) -> bool:
        newest: dict[str, Message] = {}
        for message in self.record.messages:
            if message.subject == subjects.WAKE_ACCEPTED:  # said late, where an agent died and another went on
                newest.setdefault(message.run_id, message)
            elif message.subject in (*subjects.ENDINGS, subjects.REOPENED):
                newest[message.run_id] = message
        ended = [message for message in newest.values() if message.subject in subjects.ENDINGS]
        wanted = Counter(start["goal"] for start in self.course.starts)
        return len(ended) == len(newest) and wanted <= Counter(message.payload["goal"] for message in ended)

    def _standing(self) -> str:
        told = [
            f"{message.at:.2f} {message.subject} {message.payload.get('phase', '')}" for message in self.record.messages
        ]
        return "it never ended; the last messages: " + "; ".join(told[-12:])

    def _set_up(self) -> None:
        """Runs `agentic setup` once and copies the result, because it takes longer than most courses."""
        self.bus.jetstream.make(configurations(shared=max(self.course.agents, self.course.gateways) > 1))

    def close(self) -> None:
        """Frees everything but the record."""
        record, processes = self.record, self.services.close()
        with discarding(processes):
            vars(self).clear()
        self.record = record


def begun(course: Course) -> World:
    """Waits until all runs of the course are accepted."""
    world = World(course)
    world.start()
    world.until(lambda: len(world.record.of(subjects.WAKE_ACCEPTED)) == len(course.starts))
    return world
