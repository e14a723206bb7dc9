"""Deliveries from outside become messages on the bus, each once however often it is sent.

A delivery is recorded after the bus has it. After a crash in between its sender repeats it: the same content gets the
same name, and the bus drops the second message by its Msg-Id.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from weakref import WeakValueDictionary

from pydantic import JsonValue

from ductile_gateway.ingress.mapping import Origin, Outgoing, RequestRefused, token
from ductile_gateway.ports import Artifacts, Bus, CannotKeep
from groundwork.service import strict
from groundwork.service.errors import TryAgain
from groundwork.telemetry.span import context_of
from schemas import envelope as headers

SOURCE = "/agentic-loop/ductile-gateway/ingress"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """`headers` by lower-case name, without repeated ones; `path` decoded. `read` gives the body once, or raises
    RequestRefused."""

    method: str
    path: str
    headers: Mapping[str, str]
    read: Callable[[], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What came of a delivery. `about` is the wake id of a start, else the run's id."""

    event_type: str
    event_key: str
    about: str
    duplicate: bool


class Deliveries(Protocol):
    """The record of deliveries, by source and by what tells one delivery from another. Raises TryAgain or Broken."""

    async def find(self, source: str, identity: str) -> str | None:
        """The key of the event that came of it."""

    async def record(self, source: str, identity: str, *, event_key: str, at: datetime) -> None:
        """Durable on return. The first record of a delivery stays."""

    async def forget_before(self, instant: datetime) -> None:
        """Drop what was received before."""


class Intake:
    def __init__(
        self,
        bus: Bus,
        artifacts: Artifacts,
        *,
        deliveries: Deliveries,
        within_s: float,
        max_in_hand: int,
    ) -> None:
        self._bus = bus
        self._artifacts = artifacts
        self._deliveries = deliveries
        self._within_s = within_s
        self._max_in_hand = max_in_hand
        self._taking = 0
        self._in_hand: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def take(self, event_type: str, event: Outgoing, *, origin: Origin, identity: str) -> Acceptance:
        """Durable on return, or known before. `identity`: of the delivery within its source. Raises TryAgain or
        RequestRefused."""
        if self._taking >= self._max_in_hand:
            raise TryAgain(f"{self._taking} deliveries wait for the bus already")
        self._taking += 1
        try:
            async with asyncio.timeout(self._within_s):
                known = await self._once(event, origin, token(identity))
        except TimeoutError as error:
            raise TryAgain(f"the bus did not take the event within {self._within_s:g} s") from error
        finally:
            self._taking -= 1
        key, duplicate = known or event.key, known is not None
        facts = {"source": origin.source, "event": event.subject, "key": key, "duplicate": duplicate}
        log.info("event from outside", extra=facts)
        return Acceptance(event_type=event_type, event_key=key, about=event.about, duplicate=duplicate)

    async def _once(self, event: Outgoing, origin: Origin, identity: str) -> str | None:
        delivery = (origin.source, identity)
        async with self._in_hand.setdefault(delivery, asyncio.Lock()):
            known = await self._deliveries.find(*delivery)
            if known is None:
                await self._keep(event)
                await self._bus.publish(event.subject, event.body, key=event.key, headers=_headers(event, origin))
                await self._deliveries.record(*delivery, event_key=event.key, at=origin.at)
            return known

    async def _keep(self, event: Outgoing) -> None:
        for one in event.artifacts:
            try:
                await self._artifacts.put(event.about, one.name, one.artifact.content, one.artifact.content_type)
            except CannotKeep as error:
                told = "the result is too large for an event, and for a run of this name no artifact can be stored"
                raise RequestRefused(422, told) from error


def read_json(body: bytes) -> JsonValue:
    try:
        return strict.read(body)
    except strict.NotStrictJson as error:
        raise RequestRefused(400, f"invalid JSON body: it {error}") from None


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _headers(event: Outgoing, origin: Origin) -> dict[str, str]:
    named = headers.of_cloud_event(
        event.subject,
        dedupe_key=event.key,
        source=f"{SOURCE}/{origin.source}",
        at=origin.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    )
    about = {headers.RUN_ID: event.run_id} if event.run_id else {}
    traced = {headers.TRACEPARENT: origin.traceparent} if context_of(origin.traceparent) and origin.traceparent else {}
    return named | about | traced
