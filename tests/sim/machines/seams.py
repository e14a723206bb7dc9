"""Hooks at the program's boundary through which a sown bug changes data as a faulty program would."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Frame:
    """`head` is the whole header block with its last empty line, or empty."""

    subject: str
    body: bytes
    reply: str = ""
    head: bytes = b""


def as_said(_: str, message: Frame) -> list[Frame]:
    return [message]


@dataclass
class Seams:
    """Each hook gets the name of the process first."""

    said: Callable[[str, Frame], list[Frame]] = as_said
    """Replaces a message that a process publishes."""
    heard: Callable[[str, Frame], list[Frame]] = as_said
    """Replaces a message that a process receives."""
    sends: Callable[[str, bytes], list[bytes]] = lambda _, data: [data]
    """Replaces an HTTP request of a process."""
    receives: Callable[[str, bytes], bytes | None] = lambda _, data: data
    """Replaces the answer to an HTTP request; None breaks the connection."""
    commits: Callable[[str, sqlite3.Connection], None] = lambda *_: None
    """Runs before each commit; an exception rolls it back."""
    committed: Callable[[str, sqlite3.Connection], None] = lambda *_: None
    """Runs after each commit."""
    keeps: Callable[[str], bool] = lambda _: True
    """False discards an acknowledged commit."""
