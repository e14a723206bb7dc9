"""Where the program touches the world, as hooks: a sown bug changes what passes there, as the program might have."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Frame:
    """`head` is the whole header block, with its last empty line; empty where there is none."""

    subject: str
    body: bytes
    reply: str = ""
    head: bytes = b""


def as_said(_: str, message: Frame) -> list[Frame]:
    return [message]


@dataclass
class Seams:
    """Each hook is told the name of the process first."""

    said: Callable[[str, Frame], list[Frame]] = as_said
    """What a process publishes: what of it arrives."""
    heard: Callable[[str, Frame], list[Frame]] = as_said
    """What a process is delivered: what of it it sees."""
    sends: Callable[[str, bytes], list[bytes]] = lambda _, data: [data]
    """Requests by HTTP: those that leave."""
    receives: Callable[[str, bytes], bytes | None] = lambda _, data: data
    """Answers by HTTP; None: the connection breaks instead."""
    commits: Callable[[str, sqlite3.Connection], None] = lambda *_: None
    """Before each commit: what it raises undoes it."""
    committed: Callable[[str, sqlite3.Connection], None] = lambda *_: None
    """After each commit."""
    keeps: Callable[[str], bool] = lambda _: True
    """Whether a commit that is acknowledged is stored."""
