"""Reads streams: the location of one message, and the signed endings of runs.

JetStream cannot look a message up by its id, so the subject is read from the instant at which it was sent.
"""

from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any

from agent_service.trust.proofs import open_sealed_head
from agent_service.views.why import ConsumerPosition, MessageLocation
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import subject_matches
from groundwork.nats.shared_log import stored_by_now
from groundwork.service.errors import TryAgain
from groundwork.service.keys import KeyRing
from schemas import envelope, subjects
from schemas.values import dataclass

MARGIN = timedelta(seconds=10)
MOST_READ = 10_000
ANSWER_WITHIN_S = 2.0


async def locate(link: NatsLink, stream: str, subject: str, key: str, since: datetime) -> MessageLocation | None:
    """The newest message with this dedupe key: ours goes out under `<key>#2` if another took the id. Raises Failure."""
    found, read = None, 0
    async with aclosing(stored_by_now(link, stream, subject, since=since - MARGIN, headers_only=True)) as messages:
        async for message in messages:
            read += 1
            if message.headers.get(envelope.MSG_ID, "").partition("#")[0] == key:
                found = message
            if read == MOST_READ:
                break
    if found is None:
        if read == MOST_READ:
            raise TryAgain(f"{stream} has too many messages on {subject} to look through")
        return None
    answer = await link.ask_jetstream(f"CONSUMER.LIST.{stream}", timeout_s=ANSWER_WITHIN_S)
    consumers = (_position(info, found.seq) for info in answer.get("consumers") or () if _takes(info, subject))
    return MessageLocation(stream=stream, seq=found.seq, at=found.at, consumers=tuple(consumers))


def _takes(info: Mapping[str, Any], subject: str) -> bool:
    config = info["config"]
    patterns = config.get("filter_subjects") or [config.get("filter_subject") or ">"]
    return bool(config.get("durable_name")) and any(subject_matches(pattern, subject) for pattern in patterns)


def _position(info: Mapping[str, Any], seq: int) -> ConsumerPosition:
    delivered, done = info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"]
    over = seq <= done or (seq <= delivered and not info.get("num_ack_pending"))
    return ConsumerPosition(
        consumer=str(info["name"]),
        progress="done" if over else "in_hand" if seq <= delivered else "ahead",
        before=max(0, seq - delivered - 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEnding:
    """`seq` is the newest entry at the end of the run, `head` its hash in hex."""

    run_id: str
    subject: str
    seq: int
    head: str


async def signed_endings(link: NatsLink, ring: KeyRing) -> list[SignedEnding]:
    """Endings that the agent signed with a key of the ring. Raises TryAgain and Misconfigured."""
    found = []
    async for message in stored_by_now(link, subjects.STREAM, f"{subjects.EVENTS}*", headers_only=True):
        run_id = message.headers.get(envelope.RUN_ID, "")
        sealed = open_sealed_head(ring, run_id, message.headers.get(envelope.HEAD, ""))
        if sealed and message.subject in subjects.ENDINGS:
            found.append(SignedEnding(run_id=run_id, subject=message.subject, seq=sealed[0], head=sealed[1]))
    return found
