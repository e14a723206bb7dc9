"""Retention of dead letters and of the gateway's calls.

The newest message of a stream stays: nats-server 2.15 would forget all its message ids at its next crash.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from typing import NoReturn

from nats.js.api import ConsumerConfig, DeliverPolicy
from pydantic import ValidationError

from agent_service.archive.retention import Beside, KeepRunsSettings
from agent_service.bus.reading import headers_of
from agent_service.run.ports import Clock
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import NotThere
from groundwork.service.errors import Failure
from schemas import subjects
from schemas.status import GatewayPruned, PruneAsked

STREAM, LETTERS = subjects.STREAM_DEAD_LETTERS, "dead_letters"
LOOK_S = 3600.0
AT_ONCE = 2000
"""Messages that go in one pass, each by a request of its own."""
PRUNED_WITHIN_S = 10.0
BY_ITSELF = "a gateway that runs does it once an hour"

log = logging.getLogger(__name__)


class NatsBesideRuns:
    """Fills the port BesideRuns. What cannot be reached is told, not waited for."""

    def __init__(self, link: NatsLink, rules: KeepRunsSettings, clock: Clock) -> None:
        self._link = link
        self._rules = rules
        self._clock = clock

    async def keep(self) -> NoReturn:
        """Have dead letters go whose time is over, once an hour, for ever. The gateway sees to its own."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                for rule, letters in (await self.letters(dry_run=False)).items():
                    log.info("dead letters are kept no longer", extra={"messages": letters, "rule": rule})
            except Failure as error:
                log.warning("dead letters whose time is over are still there", extra={"why": str(error)})

    async def prune(self, *, dry_run: bool) -> Beside:
        letters: Mapping[str, int] = {}
        trouble = []
        try:
            letters = await self.letters(dry_run=dry_run)
        except Failure as error:
            trouble.append(f"dead letters: {error}")
        gateway = await self._gateway(dry_run=dry_run)
        if gateway.trouble:
            trouble.append(f"the gateway's ledger: {gateway.trouble}")
        return Beside(dead_letters=letters, gateway=gateway.rows, trouble="; ".join(trouble))

    async def letters(self, *, dry_run: bool) -> Mapping[str, int]:
        """How many messages of the stream went, or would go, by each rule; at most AT_ONCE. Raises Failure."""
        if not self._rules.delete_letters:
            return {}
        old = await self._old()
        for seq in () if dry_run else old:
            try:
                await self._link.ask_jetstream(f"STREAM.MSG.DELETE.{STREAM}", {"seq": seq})
            except NotThere:
                continue
        return Counter(old.values())

    async def _old(self) -> dict[int, str]:
        state = (await self._link.ask_jetstream(f"STREAM.INFO.{STREAM}"))["state"]
        most, kept = self._rules.most(LETTERS), self._rules.kept(LETTERS)
        excess = max(0, state["bytes"] - most) if most is not None else 0
        too_many = math.ceil(excess * state["messages"] / state["bytes"]) if excess else 0
        before = self._clock.now() - kept if kept is not None else None
        old: dict[int, str] = {}
        start = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
        async with aclosing(headers_of(self._link, STREAM, ">", start)) as messages:
            async for message in messages:
                is_old = before is not None and message.at < before
                if message.seq >= state["last_seq"] or len(old) >= AT_ONCE or not (is_old or len(old) < too_many):
                    break
                old[message.seq] = self._rules.by_days(LETTERS) if is_old else self._rules.by_bytes(LETTERS)
        return old

    async def _gateway(self, *, dry_run: bool) -> GatewayPruned:
        question = PruneAsked(dry_run=dry_run).model_dump_json().encode()
        try:
            answer = await self._link.request(subjects.PRUNE, question, timeout_s=PRUNED_WITHIN_S)
            return GatewayPruned.model_validate_json(answer)
        except Failure as error:
            return GatewayPruned(rows={}, trouble=f"no gateway answers ({error}); {BY_ITSELF}")
        except ValidationError:
            return GatewayPruned(
                rows={}, trouble=f"the gateway's answer cannot be read: it is of another version; {BY_ITSELF}"
            )
