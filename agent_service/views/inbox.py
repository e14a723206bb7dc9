"""The inbox: runs that wait for a person, and dead letters."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import Field

from agent_service.core.state import RunState
from agent_service.errors import LEFT_ALONE, Damaged, NewerVersion
from agent_service.history.text import View, clipped, rfc3339
from agent_service.run.human_tasks import OpenTask, Remedy, open_task, remedy, stop_kind
from agent_service.store.lines import waits_for
from schemas import subjects
from schemas.envelope import RUN_ID
from schemas.events import INBOUND
from schemas.values import dataclass

PREFIX = "Dead-Letter-"
SECRET, HIDDEN = frozenset({"callback", "capability", "data_base64"}), "(hidden)"
_SECRETS = re.compile(r'("(?:callback|capability|data_base64)"\s*:\s*)"(?:[^"\\]|\\.)*(?:"|$)')
NUMBER = re.compile(r"[0-9]{1,18}")
MAX_TITLE = 200

ItemKind = Literal["approval", "question", "in_doubt", "escalated", "paused", "dead_letter"]
URGENCY = {"approval": 0, "question": 0, "in_doubt": 1, "escalated": 2, "paused": 2, "dead_letter": 3}
Action = Literal[
    "approve", "reject", "answer", "resume", "raise_budget", "cancel", "start_again", "dismiss", "retry", "discard"
]  # fmt: skip
"""Actions of a person; in lists, the usual one comes first."""
PAUSES: dict[str, tuple[ItemKind, tuple[Action, ...]]] = {
    "approval": ("approval", ("approve", "reject", "cancel")),
    "question": ("question", ("answer", "cancel")),
    "paused by a budget": ("paused", ("raise_budget", "cancel")),
    "paused": ("paused", ("resume", "cancel")),
}


class NoSuchLetter(Exception):
    """No letter has this number, or it is gone."""


class NotSentAgain(Exception):
    """The refused message must not or cannot be published again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    deed: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """`size` and `body` are those of the letter, not of the refused message. `held`: its stream still has it."""

    id: int
    buried: datetime
    headers: Mapping[str, str]
    size: int
    body: bytes = field(repr=False, default=b"")
    settled: Settled | None = None
    held: bool = True

    @property
    def subject(self) -> str:
        return self.header("Subject") or "?"

    @property
    def place(self) -> tuple[str, int]:
        return self.header("Stream"), self.header_number("Sequence")

    @property
    def is_whole(self) -> bool:
        return not self.header("Body") and not self.header("Headers")

    def header(self, name: str) -> str:
        return self.headers.get(f"{PREFIX}{name}", "")

    def header_number(self, name: str) -> int:
        return int(self.header(name)) if NUMBER.fullmatch(self.header(name)) else 0

    def is_about(self, subject: str, at: datetime) -> bool:
        """True if its message has this subject and was stored at this instant."""
        stored_at = instant_in(self.header("Time"))
        return subject == self.subject and (stored_at is None or same_instant(stored_at, at))


class LetterView(View):
    """A dead letter. `id` is its number; `stream`, `stream_seq` and `subject` are those of the refused message.

    `status` is `open`, `retried` or `dropped`. `body` is the refused message, cut to a maximum length, and null where
    it is gone or was not asked for. Callback addresses and capabilities are hidden in it.
    """

    id: int
    at: datetime
    status: str
    subject: str
    reason: str
    deliveries: int
    run_id: str | None
    consumer: str | None
    target: str | None
    stream: str | None
    stream_seq: int | None
    msg_id: str | None
    bytes: int
    body: str | None = None
    settled: Settled | None


def letter_view(letter: DeadLetter) -> LetterView:
    stream, sequence = letter.place
    return LetterView(
        id=letter.id,
        at=letter.buried,
        status=letter.settled.deed if letter.settled else "open",
        subject=letter.subject,
        reason=letter.header("Reason"),
        deliveries=letter.header_number("Deliveries"),
        run_id=letter.headers.get(RUN_ID),
        consumer=letter.header("Consumer") or None,
        target=letter.header("Target") or None,
        stream=stream or None,
        stream_seq=sequence or None,
        msg_id=letter.header("Msg-Id") or letter.header("Key") or None,
        bytes=letter.size,
        settled=letter.settled,
    )


class InboxItem(View):
    """One card. `run_id` names the run, `seq` the dead letter; `text` is the reason, `class` its class.

    `asks` is the whole request to the person.
    """

    id: str
    kind: ItemKind
    run_id: str | None
    seq: int | None = None
    since: datetime
    title: str
    text: str
    item_class: str = Field(alias="class")
    asks: OpenTask | None = None
    remedy: Remedy | None = None
    actions: tuple[Action, ...] = ()

    @property
    def urgency(self) -> tuple[int, float]:
        """Lower comes first; of equal kinds, the newest."""
        return URGENCY[self.kind], -self.since.timestamp()


class InboxView(View):
    """By urgency: approvals and questions, writes in doubt, stopped runs, dead letters. `total` counts them all;
    `trouble` says why dead letters are missing, if they are.
    """

    items: tuple[InboxItem, ...]
    total: int
    trouble: str = ""


def run_item(run: RunState, at: datetime) -> InboxItem:
    asks, waits, until = open_task(run), waits_for(run, run.due_at), run.reopens_until
    ended: ItemKind = "in_doubt" if run.ending_class == "in_doubt" else "escalated"
    after_end: tuple[Action, ...] = ("start_again", "dismiss") if until else ()
    if until and at <= until:
        after_end = "answer", *after_end
    kind, actions = PAUSES.get(stop_kind(run)) or (ended, after_end)
    return InboxItem(
        id=f"run:{run.run_id}",
        kind=kind,
        run_id=run.run_id,
        since=run.ended_at or (waits.since if waits else run.updated_at),
        title=clipped(run.brief.goal, MAX_TITLE),
        text=asks.question or asks.reason if asks else str(run.reason),
        item_class=run.ending_class or (asks.kind if asks else ""),
        asks=asks,
        remedy=remedy(run),
        actions=actions,
    )


def unread_run_item(error: Damaged | NewerVersion, since: datetime) -> InboxItem:
    run_id, why = error.run_id, "damaged" if isinstance(error, Damaged) else "newer_version"
    about = {"run_id": run_id, "title": run_id, "text": str(error), "class": why, "since": since}
    return InboxItem.model_validate({"id": f"run:{run_id}", "kind": "escalated", **about})


def letter_item(letter: DeadLetter) -> InboxItem:
    why, actions = obstacle(letter), tuple[Action, ...](["discard"])
    if not why and letter.header_number("Deliveries") == 1 and LEFT_ALONE not in letter.header("Reason"):
        why, actions = "it was refused for its content, and would be refused again: drop it", ("discard", "retry")
    elif not why:
        actions = ("retry", "discard")
    deed = "drop" if why else "retry"
    return InboxItem(
        id=f"letter:{letter.id}",
        kind="dead_letter",
        run_id=letter.headers.get(RUN_ID),
        seq=letter.id,
        since=letter.buried,
        title=clipped(f"A message on {letter.subject} could not be handled", MAX_TITLE),
        text=letter.header("Reason"),
        item_class="dead_letter",
        remedy=Remedy(text=why or "correct what it names, then retry it", command=f"agentic dlq {deed} {letter.id}"),
        actions=actions,
    )


def obstacle(letter: DeadLetter) -> str:
    if done := letter.settled:
        again = "; if it was refused again, that is a dead letter of its own" if done.deed == "retried" else ""
        return f"it was {done.deed} by {done.by} at {rfc3339(done.at)}{again}"
    if letter.header("Target"):
        return "it is a delivery to an address outside, not a message of the bus: deliver it by hand, then drop it"
    if letter.subject not in INBOUND and not letter.subject.startswith(f"{subjects.TOOL_REQUEST}."):
        return f"{letter.subject[:80]} is an announcement, which is published once: drop it when it is dealt with"
    return ""


def instant_in(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def same_instant(one: datetime, other: datetime) -> bool:
    return abs(one - other) < timedelta(milliseconds=1)


def without_secrets(body: str) -> str:
    """The body as it is, or written anew where it holds a secret."""
    try:
        found = json.loads(body, object_pairs_hook=_with_all_values)
        hidden = _hidden(found)
    except (ValueError, RecursionError):
        return _SECRETS.sub(r'\1"(hidden)"', body)
    return body if hidden == found else json.dumps(hidden, ensure_ascii=False)


def _with_all_values(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which a name that stands twice has a list of both values: the first may be a secret."""
    whole = dict[str, Any]()
    for name, value in pairs:
        whole[name] = [whole[name], value] if name in whole else value
    return whole


def _hidden(value: Any) -> Any:
    match value:
        case dict():
            return {name: HIDDEN if name in SECRET and one else _hidden(one) for name, one in value.items()}
        case list():
            return [_hidden(one) for one in value]
        case str() if value[:1] in ("{", "["):
            return without_secrets(value)
    return value
