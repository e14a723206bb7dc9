"""Record of the world, independent of what the program reports: messages, jobs, paid prompts, deaths."""

import json
from dataclasses import dataclass, field
from typing import Any

from schemas import subjects
from tests.sim.servers.ductile import Job
from tests.sim.servers.model import Prompt
from tests.sim.servers.streams import StoredMessage, headers_of

Json = dict[str, Any]
AGAIN = "again "
"""Prefix of the ids of messages that others repeat."""


@dataclass(frozen=True, slots=True)
class Message:
    subject: str
    payload: Json
    id: str
    at: float

    @property
    def run_id(self) -> str:
        return str(self.payload.get("run_id", ""))


@dataclass
class Record:
    messages: list[Message] = field(default_factory=list)
    ran: list[Job] = field(default_factory=list)
    paid: list[Prompt] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    received: list[Json] = field(default_factory=list)
    """Callbacks that receivers accepted."""
    interrupted: int = 0
    """Model calls whose reply a fault lost."""
    lossless: bool = True
    """True if the bus lost nothing: acceptance and progress may otherwise be lost for good."""

    def stored(self, kept: StoredMessage) -> Message | None:
        """Returns None for a lease or a repetition by others."""
        msg_id = headers_of(kept.head).get("Nats-Msg-Id", "")
        if kept.subject.startswith("$") or msg_id.startswith(AGAIN):
            return None
        try:
            payload = json.loads(kept.body).get("payload", {})
        except (ValueError, AttributeError):
            return None
        message = Message(kept.subject, payload, msg_id, kept.at)
        self.messages.append(message)
        return message

    def of(self, subject: str) -> list[Message]:
        return [message for message in self.messages if message.subject == subject]

    @property
    def endings(self) -> list[Message]:
        return [message for message in self.messages if message.subject in subjects.ENDINGS]

    @property
    def requests(self) -> list[Message]:
        return [message for message in self.messages if message.subject.startswith(subjects.TOOL_REQUEST)]
