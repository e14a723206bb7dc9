"""Streams and consumers of the simulated JetStream: what they store and what is due."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from groundwork.nats import publishing

matches = lru_cache(maxsize=1 << 16)(publishing.subject_matches)

HEAD, END = b"NATS/1.0\r\n", b"\r\n"
REDELIVERED_AGAIN_S = 0.01
NS = 1e9

Json = dict[str, Any]


def headers_of(head: bytes) -> dict[str, str]:
    lines = head.decode().split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def head_of(headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return HEAD + lines.encode() + END if headers else b""


@dataclass(slots=True)
class StoredMessage:
    seq: int
    subject: str
    body: bytes
    head: bytes
    at: float
    time: datetime


@dataclass(eq=False)
class Stream:
    name: str
    config: Json
    created: str
    first: int = 1
    last: int = 0
    kept: dict[int, StoredMessage] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, "Consumer"] = field(default_factory=dict)

    def takes(self, subject: str) -> bool:
        return any(matches(pattern, subject) for pattern in self.config.get("subjects", ()))

    def newest_of(self, pattern: str) -> StoredMessage | None:
        if "*" not in pattern and ">" not in pattern:
            seq = self.newest.get(pattern, 0)
            return self.kept.get(seq)
        found = (seq for subject, seq in self.newest.items() if matches(pattern, subject) and seq in self.kept)
        return self.kept.get(max(found, default=0))

    def remove(self, seq: int) -> None:
        self.kept.pop(seq, None)
        while self.first <= self.last and self.first not in self.kept:
            self.first += 1

    def purge(self, subject: str) -> None:
        for seq in [seq for seq, one in self.kept.items() if one.subject == subject]:
            self.remove(seq)

    def forget(self, number: int) -> None:
        """Loses the newest, unsynced messages: their numbers are reused."""
        for seq in range(self.last, max(self.last - number, 0), -1):
            self.kept.pop(seq, None)
            self.last = seq - 1
        self.first = min(self.first, self.last + 1)
        self.ids = {name: seq for name, seq in self.ids.items() if seq <= self.last}
        self.newest = {}
        for one in self.kept.values():
            self.newest[one.subject] = max(self.newest.get(one.subject, 0), one.seq)
        for consumer in self.consumers.values():
            consumer.cursor = min(consumer.cursor, self.last)
            consumer.pending = {seq: due for seq, due in consumer.pending.items() if seq <= self.last}

    def state(self) -> Json:
        size = sum(len(one.body) + len(one.head) for one in self.kept.values())
        return {
            "messages": len(self.kept),
            "bytes": size,
            "first_seq": self.first,
            "last_seq": self.last,
            "num_subjects": len(self.newest),
            "consumer_count": len(self.consumers),
            "first_ts": self.created,
            "last_ts": self.created,
        }


@dataclass(slots=True)
class Pull:
    reply: str
    left: int
    until: float


@dataclass(eq=False)
class Consumer:
    stream: Stream
    name: str
    config: Json
    created: str
    cursor: int = 0
    delivered: int = 0
    pending: dict[int, float] = field(default_factory=dict)
    """Time of redelivery by sequence."""
    times: dict[int, int] = field(default_factory=dict)
    pulls: list[Pull] = field(default_factory=list)
    later: list[int] = field(default_factory=list)
    """Sequences that were skipped for now."""

    @property
    def ack_wait(self) -> float:
        return float(self.config.get("ack_wait", 30 * NS)) / NS

    @property
    def acknowledges(self) -> bool:
        return bool(self.config.get("ack_policy", "explicit") != "none")

    def wants(self, subject: str) -> bool:
        one = self.config.get("filter_subject")
        filters = [one] if one else self.config.get("filter_subjects") or []
        return not filters or any(matches(pattern, subject) for pattern in filters)

    def next(self, now: float) -> int | None:
        due = [seq for seq, at in self.pending.items() if at <= now and seq in self.stream.kept]
        if due:
            return min(due)
        if len(self.pending) >= self.config.get("max_ack_pending", 1000) and self.acknowledges:
            return None
        if self.later:
            return self.later.pop(0)
        while self.cursor < self.stream.last:
            self.cursor += 1
            kept = self.stream.kept.get(self.cursor)
            if kept and self.wants(kept.subject):
                return self.cursor
        return None

    def info(self) -> Json:
        behind = sum(1 for seq, one in self.stream.kept.items() if seq > self.cursor and self.wants(one.subject))
        return {
            "stream_name": self.stream.name,
            "name": self.name,
            "created": self.created,
            "config": self.config,
            "delivered": {"consumer_seq": self.delivered, "stream_seq": self.cursor},
            "ack_floor": {"consumer_seq": 0, "stream_seq": min(self.pending, default=self.cursor + 1) - 1},
            "num_ack_pending": len(self.pending),
            "num_redelivered": sum(1 for times in self.times.values() if times > 1),
            "num_waiting": len(self.pulls),
            "num_pending": behind + len(self.later),
            "push_bound": bool(self.config.get("deliver_subject")),
        }
