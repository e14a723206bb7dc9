"""Boundary between processes and their world: where they die, and where a sown bug changes what passes.

A process dies before its n-th effect on the world, or where the seed says. An effect is visible to others: a message,
an acknowledgement, a request, a commit. A death anywhere between two effects has the same result. Queries
(JetStream's API) are no effects.
"""

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.sim.machines.time import Killed, Process, Scheduler

_PUBLISHED = re.compile(rb"^H?PUB (\S+)", re.MULTILINE)
_ASKED = (b"$JS.API.", b"$KV.", b"_INBOX")
_REQUEST = re.compile(rb"^(POST \S+|HTTP/1.1 \d+)")


@dataclass(slots=True)
class Frame:
    """`head` is the whole header block with its last empty line, or empty."""

    subject: str
    body: bytes
    reply: str = ""
    head: bytes = b""


def as_said(_: str, message: Frame) -> list[Frame]:
    return [message]


@dataclass(slots=True)
class Boundary:
    """Each hook for data gets the name of the process first."""

    scheduler: Scheduler
    effects: list[str] = field(default_factory=list)
    """In order, such as `agent: agent.progress`."""
    dies_at: int | None = None
    """Number, from 1, of the effect before which its process dies."""
    dies: Callable[[Process], bool] = lambda _: False
    """True if the process dies before the newest effect."""
    on_death: Callable[[Process], None] = lambda _: None
    said: Callable[[str, Frame], list[Frame]] = as_said
    """Replaces a message that a process publishes."""
    heard: Callable[[str, Frame], list[Frame]] = as_said
    """Replaces a message that a process receives."""
    asks: Callable[[str, bytes], list[bytes]] = lambda _, data: [data]
    """Replaces an HTTP request of a process."""
    receives: Callable[[str, bytes], bytes | None] = lambda _, data: data
    """Replaces the answer to an HTTP request; None breaks the connection."""
    commits: Callable[[str, sqlite3.Connection], None] = lambda *_: None
    """Runs before each commit; an exception rolls it back."""
    committed: Callable[[str, sqlite3.Connection], None] = lambda *_: None
    """Runs after each commit."""
    keeps: Callable[[str], bool] = lambda _: True
    """False discards an acknowledged commit."""

    def passes(self, process: Process, effects: list[str]) -> None:
        """Raises Killed if the process dies before one of them."""
        if not process.alive:
            raise Killed
        for what in effects:
            self.effects.append(f"{process.name}: {what}")
            if len(self.effects) == self.dies_at or self.dies(process):
                process.kill()
                self.on_death(process)
                raise Killed


def effects_of(host: str, data: bytes) -> list[str]:
    if host != "bus":
        found = _REQUEST.match(data)
        return [found.group(1).decode()] if found else []
    subjects = [subject for subject in _PUBLISHED.findall(data) if not subject.startswith(_ASKED)]
    return ["an acknowledgement" if one.startswith(b"$JS.ACK") else one.decode() for one in subjects]
