"""NATS server: client protocol, subjects and subscriptions. JetStream is in `jetstream`."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.sim.machines.boundary import Boundary, Frame
from tests.sim.machines.network import Connection
from tests.sim.servers.jetstream import JetStream
from tests.sim.servers.streams import matches

CRLF = b"\r\n"
NOBODY = b"NATS/1.0 503\r\n\r\n"
INFO = {
    "server_id": "sim",
    "version": "2.15.1",
    "headers": True,
    "max_payload": 1024 * 1024,
    "proto": 1,
    "jetstream": True,
}


@dataclass(eq=False, slots=True)
class Subscription:
    session: "Session"
    sid: str
    pattern: str
    group: str
    begins: str = ""

    def __post_init__(self) -> None:
        self.begins = self.pattern.split("*")[0].rstrip(">")

    def hears(self, subject: str) -> bool:
        return self.pattern == subject or (subject.startswith(self.begins) and matches(self.pattern, subject))


@dataclass(eq=False)
class Session:
    server: "NatsServer"
    connection: Connection
    _buffer: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.connection.send(b"INFO " + json.dumps(INFO).encode() + CRLF)

    def received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(CRLF)) >= 0:
            line = bytes(self._buffer[:end]).decode()
            verb, _, rest = line.partition(" ")
            if verb in ("PUB", "HPUB"):
                size = int(rest.rsplit(" ", 1)[1])
                if len(self._buffer) < end + 2 + size + 2:
                    return
                payload = bytes(self._buffer[end + 2 : end + 2 + size])
                del self._buffer[: end + 4 + size]
                message = _message(verb, rest.split(" "), payload)
                for each in self.server.boundary.said(self.connection.process.name, message):
                    self.server.publish(each)
            else:
                del self._buffer[: end + 2]
                self._asked(verb.upper(), rest.split(" "))

    def closed(self) -> None:
        self.server.leave(self)

    def deliver(self, subscription: Subscription, message: Frame) -> None:
        for each in self.server.boundary.heard(self.connection.process.name, message):
            self._deliver(subscription, each)

    def _deliver(self, subscription: Subscription, message: Frame) -> None:
        reply = f" {message.reply}" if message.reply else ""
        if message.head:
            sizes = f"{len(message.head)} {len(message.head) + len(message.body)}"
            line = f"HMSG {message.subject} {subscription.sid}{reply} {sizes}\r\n"
        else:
            line = f"MSG {message.subject} {subscription.sid}{reply} {len(message.body)}\r\n"
        self.connection.send(line.encode() + message.head + message.body + CRLF)

    def _asked(self, verb: str, words: list[str]) -> None:
        if verb == "PING":
            self.connection.send(b"PONG\r\n")
        elif verb == "SUB":
            group = words[1] if len(words) == 3 else ""
            self.server.subscribe(Subscription(self, words[-1], words[0], group))
        elif verb == "UNSUB":
            self.server.unsubscribe(self, words[0])


def _message(verb: str, words: list[str], payload: bytes) -> Frame:
    head = int(words[-2]) if verb == "HPUB" else 0
    reply = words[1] if len(words) == (4 if verb == "HPUB" else 3) else ""
    return Frame(words[0], payload[head:], reply, payload[:head])


class NatsServer:
    def __init__(self, boundary: Boundary) -> None:
        self.up = True
        self.boundary = boundary
        self.scheduler = scheduler = boundary.scheduler
        self.jetstream = JetStream(scheduler, self.hand_out, self._is_heard)
        self._subscriptions: list[Subscription] = []
        self._sessions: list[Session] = []

    def accept(self, connection: Connection) -> Session:
        session = Session(self, connection)
        self._sessions.append(session)
        return session

    def leave(self, session: Session) -> None:
        if session in self._sessions:
            self._sessions.remove(session)
        self._subscriptions = [one for one in self._subscriptions if one.session is not session]

    def subscribe(self, made: Subscription) -> None:
        self._subscriptions.append(made)

    def unsubscribe(self, session: Session, sid: str) -> None:
        self._subscriptions = [s for s in self._subscriptions if (s.session, s.sid) != (session, sid)]

    def publish(self, message: Frame) -> None:
        if self.jetstream.takes(message.subject, message.body, message.reply):
            return
        stored = self.jetstream.store(message.subject, message.body, message.reply, message.head)
        reply = "" if stored else message.reply
        heard = self.hand_out(message.subject, message.body, reply, message.head)
        if reply and not heard:
            self.hand_out(reply, b"", "", NOBODY)

    def hand_out(self, to: str, body: bytes, reply: str = "", head: bytes = b"", *, subject: str = "") -> bool:
        """Delivers to every subscriber and to one of each queue group; returns True if there was any. `subject` is
        the one that they see."""
        found = list(self._chosen(to))
        for subscription in found:
            subscription.session.deliver(subscription, Frame(subject or to, body, reply, head))
        return bool(found)

    def restart(self, *, away_s: float) -> None:
        """Disconnects all clients and forgets pull requests."""
        self.up = False
        for session in list(self._sessions):
            session.connection.cut()
        self.jetstream.forget_pulls()
        self.scheduler.after(away_s, lambda: setattr(self, "up", True))

    def _is_heard(self, subject: str) -> bool:
        return any(one.hears(subject) for one in self._subscriptions)

    def _chosen(self, subject: str) -> Iterator[Subscription]:
        heard = [one for one in self._subscriptions if one.hears(subject)]
        if not any(one.group for one in heard):
            yield from heard
            return
        groups = itertools.groupby(sorted(heard, key=lambda one: one.group), key=lambda one: one.group)
        for group, members in groups:
            listed = list(members)
            yield from ([self.scheduler.random.choice(listed)] if group else listed)
