"""Outbox: publishes messages after their commit, and tracks how far each run is dispatched.

There is no outbox table: a run's row holds the entry up to which all effects are performed (`dispatched`); the rest
follows from journal and state.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import field
from datetime import datetime
from functools import partial

from pydantic_core import to_json

from agent_service.errors import Stopped
from agent_service.kill_switch import KillSwitch
from agent_service.run.messages import OutgoingMessage
from agent_service.run.ports import EventBus
from agent_service.store.runs import RunStore
from agent_service.trust.identity import root_span_id, trace_id
from agent_service.trust.proofs import Capabilities, Signing, sealed_head
from groundwork.nats.link import BUDGET_SECONDS
from groundwork.nats.publishing import BusRefused, StoredMessage
from groundwork.service.errors import Failure, NoRoom, TryAgain
from groundwork.telemetry.span import Sampler, sampler
from schemas import envelope, subjects
from schemas.envelope import MSG_ID, SIGNATURE, without_capability
from schemas.values import dataclass

SOURCE = "/agentic-loop/agent"
ANNOUNCED = 4096
ANNOUNCED_WITHIN_S = 2.0
"""The announcement of a run is for observers only: it is skipped if queued starts fill their stream."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Publisher:
    """Publishes messages under their keys; repeating is harmless. Requests carry their capability, messages to people a
    signature, an ending the head of its run in the store. `shared`: WAKE_ACCEPTED waits for its acknowledgement,
    because a stream without a leader loses messages.
    """

    bus: EventBus
    store: RunStore
    signing: Signing
    kill_switch: KillSwitch
    shared: bool = False
    capabilities: Capabilities = field(init=False)
    _keeps: Sampler = field(init=False, default_factory=sampler)
    _announced: dict[str, None] = field(init=False, default_factory=dict)
    """Keys of the newest announcements: the agent takes them from their queue, and their ids stay taken."""

    def __post_init__(self) -> None:
        self.capabilities = Capabilities(self.signing.ring)

    def publish(self, effect: OutgoingMessage, *, at: datetime) -> Awaitable[object]:
        """`at`: instant of the cause. Requests get the span of their attempt, other messages the trace's root. A
        rebuildable message is sent without an acknowledgement. Raises TryAgain after the retry budget, and Stopped for
        a tool request while all is stopped.
        """
        subject, key, run_id = effect.subject, effect.key, effect.run_id
        asks = subject.startswith(subjects.TOOL_REQUEST)
        if asks:
            self.kill_switch.check()
        trace = trace_id(run_id)
        headers = envelope.event_headers(
            subject,
            dedupe_key=key,
            source=SOURCE,
            at=at,
            run_id=run_id,
            trace_id=trace,
            span_id="" if asks else root_span_id(run_id),
            sampled=self._keeps(trace),
        )
        payload = effect.payload
        if effect.proves:  # first, so that it can be told from the content
            payload = {"capability": self.capabilities.of_request(effect.proves), **payload}
        body = to_json({"type": subject, "payload": payload, "dedupe_key": key})
        if self.signing.signs(effect):
            headers[SIGNATURE] = self.signing.sign(subject, body)
        if subject in subjects.ENDINGS:
            headers[envelope.HEAD] = sealed_head(self.signing.ring, run_id, *self.store.head(run_id))
        if effect.rebuildable and not (self.shared and subject == subjects.WAKE_ACCEPTED):
            return self.bus.send(subject, body, headers={**headers, MSG_ID: key})
        return self._store(subject, body, key, headers)

    async def _store(self, subject: str, body: bytes, key: str, headers: dict[str, str]) -> None:
        announces = subject == subjects.START
        within_s = ANNOUNCED_WITHIN_S if announces else BUDGET_SECONDS
        is_same = partial(self._is_same, subject, key, body, headers)
        try:
            await self.bus.publish(subject, body, msg_id=key, headers=headers, within_s=within_s, is_same=is_same)
        except Failure as error:
            if not (announces and isinstance(error, NoRoom | BusRefused)):
                raise TryAgain(str(error)) from error  # the outbox keeps the message while a person repairs the bus
            log.warning("a run begins without being announced", extra={"why": str(error)})
        if announces:
            self._announced[key] = None
            if len(self._announced) > ANNOUNCED:
                del self._announced[next(iter(self._announced))]

    def _is_same(
        self, subject: str, key: str, body: bytes, headers: Mapping[str, str], stored: StoredMessage | None
    ) -> bool:
        if stored is None:
            return key in self._announced
        if (stored.subject, without_capability(stored.body)) != (subject, without_capability(body)):
            return False
        return SIGNATURE not in headers or self.signing.verifies(subject, stored.body, stored.headers.get(SIGNATURE))


class Outbox:
    """Entries not fully dispatched, per run, in order."""

    queues = False
    """True if a task that handles no message queues the effects of its commits."""

    def __init__(self, on_dispatched: Callable[[str, int], None]) -> None:
        """`on_dispatched` receives a run and the entry up to which all effects are performed."""
        self._on_dispatched = on_dispatched
        self._entries: dict[str, dict[int, bool]] = {}
        self._postponed: set[str] = set()
        self.pending: dict[str, set[int]] = {}
        """Entries that no task is performing."""
        self.stopped: set[str] = set()
        """Runs that wait for the resume."""

    def begin(self, run_id: str, seqs: Iterable[int]) -> None:
        self._entries.setdefault(run_id, {}).update(dict.fromkeys(seqs, False))

    def found(self, run_id: str, seqs: Iterable[int]) -> None:
        new = [seq for seq in seqs if seq not in self._entries.get(run_id, ())]
        if new:
            self.begin(run_id, new)
            self.postpone(run_id, new)

    def postpone(self, run_id: str, seqs: Collection[int], error: TryAgain | None = None) -> None:
        """Retried later, or on resume if Stopped."""
        self.pending.setdefault(run_id, set()).update(seqs)
        if isinstance(error, Stopped):
            self.stopped.add(run_id)
        elif error:
            level = logging.DEBUG if self._postponed else logging.WARNING
            log.log(level, "left in the outbox", extra={"run_id": run_id, "entry": max(seqs), "why": str(error)})
            self._postponed.add(run_id)

    def take(self, run_id: str) -> set[int]:
        self.stopped.discard(run_id)
        return self.pending.pop(run_id, set())

    def done(self, run_id: str, seqs: Iterable[int]) -> None:
        entries = self._entries.get(run_id, {})
        for seq in seqs:
            if seq in entries:
                entries[seq] = True
        up_to = 0
        while entries and entries[oldest := min(entries)]:
            del entries[oldest]
            up_to = oldest
        if not entries:
            self._entries.pop(run_id, None)
        if up_to:
            self._on_dispatched(run_id, up_to)
        if run_id in self._postponed and run_id not in self._entries:  # they are published now
            self._postponed.discard(run_id)
            if not self._postponed:
                log.warning("nothing is left in the outbox any more")
