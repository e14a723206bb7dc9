"""Catches results that the stream drops as duplicates although another message took their id.

Results are also read over core NATS and compared with the stored message of the same id. A different one is handled as
any other result. It is not stored: after a crash the run asks again at the next start, which recalls the stored
messages. Of several agents, the one that the stored message was delivered to compares; the others forget.
"""

from collections import OrderedDict
from collections.abc import Callable

from nats.aio.msg import Msg

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import StoredMessage
from groundwork.nats.settling import Delivery
from schemas import subjects
from schemas.bounded import json_object
from schemas.envelope import MSG_ID

REMEMBERED = 10_000
MOST_WAITING = 1000
MOST_UNDER_ONE_ID = 4
LONGEST_ID = 1024
MOST_WAITING_BYTES = 16 * 1024 * 1024
"""Bound of all waiting bodies: an executor may send megabytes under an id that is never delivered."""


class DroppedResults:
    def __init__(self, dropped: Callable[[str, bytes], None]) -> None:
        self._dropped = dropped
        self._stored: OrderedDict[str, tuple[int, bool]] = OrderedDict()
        """By id: hash of the body, and true if such a body was heard."""
        self._waiting: OrderedDict[str, list[bytes]] = OrderedDict()
        self._bytes = 0

    async def listen(self, link: NatsLink) -> None:
        await link.subscribe(subjects.TOOL_RESULT, self._on_message)

    def delivered(self, delivery: Delivery) -> None:
        self._remember(delivery.headers.get(MSG_ID), delivery.body, matched=False)

    def recall(self, stored: StoredMessage) -> None:
        if stored.headers.get(MSG_ID) not in self._stored:
            self._remember(stored.headers.get(MSG_ID), stored.body, matched=True)

    def _remember(self, msg_id: str | None, body: bytes, *, matched: bool) -> None:
        if msg_id is None or len(msg_id) > LONGEST_ID:
            return
        _, matched = self._stored.get(msg_id, (0, matched))
        self._stored[msg_id] = hash(body), matched
        if len(self._stored) > REMEMBERED:
            self._stored.popitem(last=False)
        for waiting in self._waiting.pop(msg_id, ()):
            self._bytes -= len(waiting)
            self._compare(msg_id, waiting)

    async def _on_message(self, message: Msg) -> None:
        msg_id = (message.headers or {}).get(MSG_ID)
        if msg_id is None or len(msg_id) > LONGEST_ID:
            return
        if msg_id in self._stored:
            self._compare(msg_id, message.data)
        else:
            self._wait(msg_id, message.data)

    def _wait(self, msg_id: str, body: bytes) -> None:
        bodies = self._waiting.setdefault(msg_id, [])
        if body in bodies:
            return
        if len(bodies) == MOST_UNDER_ONE_ID:
            self._bytes -= len(bodies.pop())
        bodies.append(body)
        self._bytes += len(body)
        while len(self._waiting) > MOST_WAITING or self._bytes > MOST_WAITING_BYTES:
            self._bytes -= sum(map(len, self._waiting.popitem(last=False)[1]))

    def _compare(self, msg_id: str, body: bytes) -> None:
        stored, matched = self._stored[msg_id]
        if stored != hash(body) or (matched and not _names_attempt(body)):
            self._dropped(msg_id, body)
        else:
            self._stored[msg_id] = stored, True


def _names_attempt(body: bytes) -> bool:
    event = json_object(body) or {}
    payload = event.get("payload", event)
    return isinstance(payload, dict) and payload.get("attempt") is not None
