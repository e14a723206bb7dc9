"""Publishes results and dead letters, stores artifacts, asks the agent about runs and keys, reads the halt record."""

import contextlib
import json
import logging
import re
from collections.abc import Sequence
from functools import partial

from pydantic import ValidationError

from ductile_gateway.calls.admission import PauseGate
from ductile_gateway.webhooks.notifications import Notification
from groundwork.nats.buckets import read_value, watch_value
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import BusRefused, StoredMessage
from groundwork.service.errors import Failure, GiveUp, Misconfigured, TryAgain, patiently
from groundwork.service.json_log import Outage
from schemas import subjects
from schemas.bounded import json_object
from schemas.fields import validation_flaws
from schemas.signing import AgentKey, AgentKeys, KeysQuery
from schemas.status import Halt

ASK_AGAIN_S = 2.0
STOPPED_S = 0.25
AN_AGENT_ANSWERS_IN_S, ALL_ANSWER_IN_S = 0.5, 1.0
ENDED = frozenset({"done", "escalated", "failed", "cancelled", 410})
"""Statuses of a run that has ended, and of the refusal to tell of a deleted one."""
TELL = (404, 410)
"""Statuses of the refusals that tell of a run: of one that no agent has had yet, and of a deleted one."""
_TIME = re.compile(rb'"completed_at":"[^"]*"')
"""A webhook's result that says no time is given another one at each delivery."""

log = logging.getLogger(__name__)


class NatsBus:
    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self._outage = Outage("a stream of the bus", log)

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        def is_same(stored: StoredMessage | None) -> bool:
            if stored is None:  # a start that was taken up, under an id that also names its run
                return subject == subjects.START
            return stored.subject == subject and _TIME.sub(b"", stored.body) == _TIME.sub(b"", body)

        try:
            await self._link.publish(subject, body, msg_id=key, headers=headers, is_same=is_same)
        except TryAgain as error:
            self._outage.continues(str(error))
            raise
        except GiveUp as error:  # the bus will never accept this result: stop before others are lost
            raise Misconfigured(str(error)) from error
        self._outage.over()


async def _ask_agents(link: NatsLink, subject: str, question: bytes) -> bytes:
    """Asks one agent, and all of them if it does not answer: it may be cut off from the bus. Raises as `request`."""
    try:
        return await link.request(subject, question, timeouts_s=(AN_AGENT_ANSWERS_IN_S,))
    except TryAgain:
        return await link.request(subject + subjects.EACH, question, timeouts_s=(ALL_ANSWER_IN_S,))


async def has_ended(link: NatsLink, run_id: str) -> bool | None:
    """None if no agent says. Raises TryAgain while everything is stopped."""
    question = json.dumps({"run_id": run_id}).encode()
    try:
        answer = json_object(await _ask_agents(link, subjects.RUN_STANDING, question)) or {}
    except Failure:  # no agent, or none that may be asked
        return None
    if answer.get("stopped"):  # which the record on the bus tells a moment later
        raise TryAgain(str(answer["stopped"]), STOPPED_S)
    status = answer.get("status")
    return status in ENDED if isinstance(status, str) or status in TELL else None


async def callback_of_run(link: NatsLink, run_id: str) -> str | None:
    """The callback URL of the run, or None. Raises TryAgain if no agent answers."""
    question = json.dumps({"run_id": run_id}).encode()
    try:
        callback = (json_object(await _ask_agents(link, subjects.RUN_CALLBACK, question)) or {})["callback"]
    except (Failure, KeyError) as error:
        raise TryAgain(f"no agent tells the callback of run {run_id}", ASK_AGAIN_S) from error
    return callback if isinstance(callback, str) else None


async def dead_letter(link: NatsLink, delivery: Notification, why: str) -> None:
    """Durable on return, and idempotent. Raises TryAgain."""
    headers = {
        "Agentic-Run-Id": delivery.run_id,
        "Dead-Letter-Target": delivery.target,
        "Dead-Letter-Subject": delivery.type,
        "Dead-Letter-Key": delivery.key,
        "Dead-Letter-Deliveries": str(delivery.tries),
        "Dead-Letter-Reason": ascii(why)[1:-1][:500],
    }
    msg_id = f"dead:{delivery.target}:{delivery.key}"
    try:
        await link.publish(subjects.DEAD_LETTERS_OUTBOUND, delivery.body, msg_id=msg_id, headers=headers)
    except BusRefused as error:
        log.error("a dead letter is left out: the bus refuses it", extra={"why": str(error)})  # noqa: TRY400
    except Misconfigured as error:  # of the bus: other deliveries go on
        raise TryAgain(str(error)) from error


async def agent_keys(link: NatsLink, *, progress: bool = False) -> Sequence[AgentKey]:
    """The agent's signing keys. `progress`: asks it to sign progress, too. Raises TryAgain if none answers."""
    question = KeysQuery(progress=progress).model_dump_json().encode()
    try:
        answer = await _ask_agents(link, subjects.AGENT_KEYS, question)
        return AgentKeys.model_validate_json(answer).keys
    except (Failure, ValidationError) as error:
        why = validation_flaws(error) if isinstance(error, ValidationError) else error
        raise TryAgain(f"no agent tells its keys on {subjects.AGENT_KEYS}: {why}", ASK_AGAIN_S) from error


LOOK_S, LOOK_AGAIN_S = 30.0, 0.25


async def read_halt(link: NatsLink, gate: PauseGate) -> None:
    found = (await patiently(partial(read_value, link, subjects.LEASE_BUCKET, subjects.HALT_KEY), LOOK_AGAIN_S)).body
    before = gate.why
    with contextlib.suppress(ValidationError):  # the agent puts it right
        gate.update(Halt.model_validate_json(found) if found else None)
    if gate.why != before:
        log.warning("stopped" if gate.why else "everything goes on", extra={"why": gate.why or before})


async def follow_halt(link: NatsLink, gate: PauseGate) -> None:
    async for _ in watch_value(link, subjects.LEASE_BUCKET, subjects.HALT_KEY, every_s=LOOK_S):
        await read_halt(link, gate)
