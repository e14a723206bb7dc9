"""Subjects, messages and JetStream's answers, checked and read. Pure.

A subject or size that the server does not take makes it close the connection for good: both are checked before.
"""

import base64
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from nats.aio.msg import Msg

from groundwork.service.errors import Failure, GiveUp, Misconfigured, NoRoom, TryAgain


class NoSuchStream(Misconfigured):
    """No stream takes this subject: the setup creates them. One that was there may be on its way back."""


class Refused(GiveUp):
    """The bus will never take this message as it is. `code` is JetStream's error code, 0 if we refused it."""

    def __init__(self, reason: str, *, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code


class NotThere(Refused):
    """There is no such consumer or message."""


def matches(pattern: str, subject: str) -> bool:
    """Whether the subject is one of the pattern's: `*` stands for one token, `>` for one or more at the end."""
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, found = wanted[:-1], found[: len(wanted) - 1] if len(found) >= len(wanted) else []
    return len(wanted) == len(found) and all(w in ("*", f) for w, f in zip(wanted, found, strict=True))


MAX_SUBJECT = 255
LARGEST_MESSAGE = 1024 * 1024
"""Headers and body together, in bytes: nats-server's default, and ours where a server takes more."""
HEADER_BLOCK_BYTES = len(b"NATS/1.0\r\n\r\n")
HEADER_LINE_BYTES = len(b": \r\n")

# Tokens of printable ASCII without wildcards, separated by single dots.
_SUBJECT = re.compile(r"[!-)+-\-/-=?-~]+(?:\.[!-)+-\-/-=?-~]+)*")

MOST_IDS = 20
"""How many ids in a row a message is tried under before somebody is taken to be squatting on them."""

# JetStream's error codes (server/errors.json of nats-server): limits of the account, the server, its memory, its disk,
# and of the stream itself.
_FULL = {10002, 10023, 10028, 10047, 10077}
# The same id is being stored at this moment; too many requests. So is every error of class 5xx.
_TRANSIENT = {10158, 10167}
NO_PEERS, WITHOUT_ROOM = 10005, "insufficient storage"
"""Too few servers of a cluster can take a stream (a busy one is taken for away), and where that is for want of room."""
NO_SUCH_STREAM, WRONG_SEQUENCE = 10059, 10071
SEQUENCE, PENDING = "Nats-Sequence", "Nats-Num-Pending"
_NOT_THERE, _UNAVAILABLE = 404, 500
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Published:
    stream: str
    seq: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class StoredMessage:
    subject: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    seq: int = field(default=0, compare=False)
    at: datetime = field(default=_LONG_AGO, compare=False)

    @property
    def size(self) -> int:
        """Of its body, also where that was not asked for."""
        return int(self.headers.get("Nats-Msg-Size", len(self.body)))


def ids(msg_id: str) -> Iterator[str]:
    """The ids to publish a message under, should somebody else's message have the first ones: `a`, `a#2`, `a#3`, …"""
    return itertools.chain([msg_id], (f"{msg_id}#{number}" for number in range(2, MOST_IDS + 1)))


def check_message(subject: str, body: bytes, headers: Mapping[str, str], *, limit: int) -> None:
    """Raises Refused. `limit` is what the server takes of headers and body together, in bytes."""
    if len(subject) > MAX_SUBJECT or not _SUBJECT.fullmatch(subject):
        raise Refused(
            f"not a subject to publish to: {subject[:80]!r} ({len(subject)} characters). It has to be at most"
            f" {MAX_SUBJECT} printable ASCII characters in tokens separated by dots, without wildcards"
        )
    # Characters are at most four bytes: only what comes near the limit is worth encoding.
    characters = len("".join(headers)) + len("".join(headers.values()))
    if len(body) + 4 * (characters + len(headers) + 3) > limit:
        _check_size(subject, body, headers, limit=limit)


def _check_size(subject: str, body: bytes, headers: Mapping[str, str], *, limit: int) -> None:
    lines = sum(
        len(f"{name}{value}".encode(errors="surrogatepass")) + HEADER_LINE_BYTES for name, value in headers.items()
    )
    size = len(body) + lines + HEADER_BLOCK_BYTES
    if size > limit:
        raise Refused(
            f"a message to {subject} has {size} bytes with its headers, and {limit} are the most that it may have:"
            " store the content as an artifact and send its reference"
        )


def read_ack(answer: Msg, subject: str) -> Published:
    """What the stream answered to a publish. Raises NoRoom, TryAgain or Refused."""
    if answer.headers and answer.headers.get("Status") == "503":
        raise TryAgain(f"no stream answered for {subject}: it is missing, or its leader is just being elected")
    try:
        fields = json.loads(answer.data)
        if "error" in fields:
            raise failure(subject, fields["error"])
        return Published(fields["stream"], fields["seq"], fields.get("duplicate", False))
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"the answer to a message on {subject} did not come from a stream") from error


def read_answer(answer: Msg, question: str) -> dict[str, Any]:
    """What JetStream's API answered. Raises as `failure` says, and TryAgain where it was not JetStream."""
    try:
        fields = json.loads(answer.data)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise TryAgain(f"{question}: JetStream does not answer. Is it enabled on the server?")
    if error := fields.get("error"):
        raise failure(question, error)
    return fields


def read_stored(fields: Mapping[str, Any]) -> StoredMessage:
    """The message that JetStream answered to STREAM.MSG.GET. Raises TryAgain."""
    try:
        message = fields["message"]
        head = base64.b64decode(message.get("hdrs", "")).decode("utf-8", "replace")
        headers = dict(line.split(": ", 1) for line in head.split("\r\n") if ": " in line)
        body, at = base64.b64decode(message.get("data", "")), datetime.fromisoformat(message["time"])
        return StoredMessage(message["subject"], body, headers, message["seq"], at)
    except (ValueError, KeyError, TypeError) as error:
        raise TryAgain("the answer did not come from JetStream") from error


def read_direct(answer: Msg) -> StoredMessage | None:
    """A message that a server reads from its copy of a stream; None for what tells that there are no more."""
    headers = answer.headers or {}
    if SEQUENCE not in headers:
        return None
    at = datetime.fromisoformat(headers["Nats-Time-Stamp"])
    return StoredMessage(headers["Nats-Subject"], answer.data, headers, int(headers[SEQUENCE]), at)


def failure(what: str, error: Mapping[str, Any]) -> Failure:
    """What a refusal of JetStream means for what was to be done."""
    code, status, said = error.get("err_code", 0), error.get("code", 0), error.get("description") or ""
    text = f"{what}: {said} (JetStream error {code})"
    if code in _FULL or (code == NO_PEERS and WITHOUT_ROOM in said):
        return NoRoom(f"{text}. Make room: `nats stream edit STREAM --max-bytes=SIZE`, or free disk space")
    if code == NO_SUCH_STREAM:
        return NoSuchStream(f"{text}: run `agentic setup`, which creates what is missing")
    if code in (*_TRANSIENT, NO_PEERS) or status >= _UNAVAILABLE:
        return TryAgain(text)
    return NotThere(text, code=code) if status == _NOT_THERE else Refused(text, code=code)
