"""Messages and JetStream's answers, parsed. Pure."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from nats.aio.msg import Msg
from nats.js.api import PubAck

from groundwork.service.errors import Failure, GiveUp, Misconfigured, NoRoom, TryAgain

MOST_IDS = 20
"""Ids in a row that may be taken by other messages before we assume that somebody takes them on purpose."""
SEQUENCE, PENDING = "Nats-Sequence", "Nats-Num-Pending"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"

# JetStream's error codes (server/errors.json of nats-server).
NO_PEERS, WITHOUT_ROOM = 10005, "insufficient storage"
"""Too few servers of a cluster can take a stream (a busy one counts as away), and the text if they have no room."""
NO_SUCH_STREAM, WRONG_SEQUENCE = 10059, 10071
_FULL = {10002, 10023, 10028, 10047, 10077}
"""Limits of the account, the server, its memory, its disk, and the stream."""
_TRANSIENT = {10158, 10164, 10167}
"""The same id, or a message behind the same one, is being stored at this moment; too many requests. All errors of class
5xx are transient, too."""
_NOT_FOUND, _UNAVAILABLE = 404, 500

_ACK_PREFIX = "$JS.ACK."
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class NoSuchStream(Misconfigured):
    """No stream takes this subject: the setup creates them. A stream that existed may be on its way back."""


class BusRefused(GiveUp):
    """The bus will never take this message as it is. `code` is JetStream's error code, 0 if we refused it."""

    def __init__(self, reason: str, *, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code


class NoSuchItem(BusRefused):
    """There is no such consumer or message."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    subject: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    seq: int = field(default=0, compare=False)
    at: datetime = field(default=_LONG_AGO, compare=False)

    @property
    def size(self) -> int:
        """Bytes of the body, also where only the headers were fetched."""
        return int(self.headers.get("Nats-Msg-Size", len(self.body)))


@dataclass(frozen=True, slots=True)
class Delivery(StoredMessage):
    """`delivered`: number of deliveries so far."""

    delivered: int = 1
    consumer_seq: int = 0


def read_delivery(message: Msg) -> Delivery | None:
    """None for what is no delivery, such as a heartbeat. Raises ValueError for one that no server sent."""
    if not message.reply.startswith(_ACK_PREFIX):
        return None
    metadata = message.metadata
    at, seq = metadata.timestamp, metadata.sequence
    headers = message.headers or {}
    return Delivery(message.subject, message.data, headers, seq.stream, at, metadata.num_delivered, seq.consumer)


def subject_matches(pattern: str, subject: str) -> bool:
    """True if `pattern` covers `subject`: `*` stands for one token, `>` for one or more at the end."""
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, found = wanted[:-1], found[: len(wanted) - 1] if len(found) >= len(wanted) else []
    return len(wanted) == len(found) and all(w in ("*", f) for w, f in zip(wanted, found, strict=True))


def read_ack(answer: Msg, subject: str) -> PubAck:
    """The stream's answer to a publish. Raises NoRoom, TryAgain or BusRefused."""
    if answer.headers and answer.headers.get("Status") == "503":
        raise TryAgain(f"no stream answered for {subject}: it is missing, or its leader is just being elected")
    try:
        fields = json.loads(answer.data)
        if "error" in fields:
            raise jetstream_failure(subject, fields["error"])
        return PubAck(fields["stream"], fields["seq"], duplicate=fields.get("duplicate", False))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BusRefused(f"the answer to a message on {subject} did not come from a stream") from error


def read_answer(answer: Msg, question: str) -> dict[str, Any]:
    """An answer of JetStream's API. Raises as `jetstream_failure` says, and TryAgain where JetStream did not answer."""
    try:
        fields = json.loads(answer.data)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not isinstance(fields.get("error") or {}, dict):
        raise TryAgain(f"{question}: JetStream does not answer. Is it enabled on the server?")
    if error := fields.get("error"):
        raise jetstream_failure(question, error)
    return fields


def read_stored(fields: Mapping[str, Any]) -> StoredMessage:
    """The message in an answer to STREAM.MSG.GET. Raises TryAgain."""
    try:
        message = fields["message"]
        head, body = (base64.b64decode(message.get(part, "")) for part in ("hdrs", "data"))
        at = datetime.fromisoformat(message["time"])
        return StoredMessage(message["subject"], body, read_headers(head), message["seq"], at)
    except (ValueError, KeyError, TypeError) as error:
        raise TryAgain("the answer did not come from JetStream") from error


def read_headers(block: bytes) -> dict[str, str]:
    """Headers, and the status in the first line of an answer, such as `NATS/1.0 404 No Messages`."""
    first, *lines = block.decode("utf-8", "replace").split("\r\n")
    code, _, description = first.partition(" ")[2].partition(" ")
    headers = {"Status": code, "Description": description} if code.isdigit() else {}
    for line in lines:
        name, colon, value = line.partition(":")  # some clients write no space behind it
        if colon:
            headers[name.strip()] = value.strip()
    return headers


def read_direct(answer: Msg) -> StoredMessage | None:
    """A message that a server read from its replica of a stream; None for the answer that ends the batch."""
    headers = answer.headers or {}
    if SEQUENCE not in headers:
        return None
    at = datetime.fromisoformat(headers["Nats-Time-Stamp"])
    return StoredMessage(headers["Nats-Subject"], answer.data, headers, int(headers[SEQUENCE]), at)


def jetstream_failure(what: str, error: Mapping[str, Any]) -> Failure:
    """Maps an error of JetStream to NoRoom, NoSuchStream, TryAgain, NoSuchItem or BusRefused."""
    code, status, said = error.get("err_code") or 0, error.get("code") or 0, error.get("description") or ""
    text = f"{what}: {said} (JetStream error {code})"
    if code in _FULL or (code == NO_PEERS and WITHOUT_ROOM in said):
        return NoRoom(f"{text}. Make room: `nats stream edit STREAM --max-bytes=SIZE`, or free disk space")
    if code == NO_SUCH_STREAM:
        return NoSuchStream(f"{text}: run `agentic setup`, which creates what is missing")
    if code in (*_TRANSIENT, NO_PEERS) or status >= _UNAVAILABLE:
        return TryAgain(text)
    return NoSuchItem(text, code=code) if status == _NOT_FOUND else BusRefused(text, code=code)
