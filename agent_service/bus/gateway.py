"""What gateways are asked over the bus beside their tools: would they call back there, what ails them, what may go."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing

from pydantic import ValidationError

from groundwork.nats.asking import answers
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure
from groundwork.service.machine import monotonic
from schemas import subjects
from schemas.status import GatewayPruned, GatewayStatus, PruneAsked

FLAW_WITHIN_S = 3.0
FRESH_S = 10.0
STATUS_WITHIN_S = 3.5
PRUNED_WITHIN_S = 10.0
BY_ITSELF = "a gateway that runs does it once an hour"


class NatsCallbacks:
    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def flaw(self, url: str) -> str:
        question = json.dumps({"url": url}).encode()
        try:
            told = json.loads(await self._link.request(subjects.CALLBACK, question, timeout_s=FLAW_WITHIN_S))
        except (Failure, ValueError):
            return ""
        flaw = told.get("flaw") if isinstance(told, dict) else None
        return flaw if isinstance(flaw, str) else ""


async def prune_rows(link: NatsLink, *, dry_run: bool) -> GatewayPruned:
    """Has the gateway delete what it need not know any more. What cannot be reached is told, not waited for."""
    question = PruneAsked(dry_run=dry_run).model_dump_json().encode()
    try:
        answer = await link.request(subjects.PRUNE, question, timeout_s=PRUNED_WITHIN_S)
        return GatewayPruned.model_validate_json(answer)
    except Failure as error:
        return GatewayPruned(rows={}, trouble=f"no gateway answers ({error}); {BY_ITSELF}")
    except ValidationError:
        why = "the gateway's answer cannot be read: it is of another version"
        return GatewayPruned(rows={}, trouble=f"{why}; {BY_ITSELF}")


class NatsTroubles:
    """Asks at most every few seconds, because the gateway asks its Ductile. Fills Troubles."""

    def __init__(self, link: NatsLink, *, fresh_s: float = FRESH_S) -> None:
        self._link = link
        self._fresh_s = fresh_s
        self._told: GatewayStatus | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def of(self, executor: str, *, run_id: str, step: int) -> str:
        status = await self.status()
        if status is None or status.executor != executor:
            return ""
        waits = [call.why for call in status.waiting if (call.run_id, call.step) == (run_id, step)]
        return "; ".join(waits) or "; ".join(
            f"{found.name}: {found.text}" for found in status.findings if found.mark == "wrong"
        )

    async def status(self) -> GatewayStatus | None:
        async with self._asking:
            if monotonic() - self._asked_at > self._fresh_s:
                self._told = await self._ask()
                self._asked_at = monotonic()
            return self._told

    async def _ask(self) -> GatewayStatus | None:
        try:
            return together(await statuses(self._link, within_s=STATUS_WITHIN_S))
        except (Failure, ValidationError):
            return None


async def statuses(link: NatsLink, *, within_s: float) -> Sequence[GatewayStatus]:
    """Raises Failure where no gateway answers in time, and ValidationError for an answer that is no status."""
    told: dict[str, GatewayStatus] = {}
    async with aclosing(answers(link, subjects.STATUS, within_s=within_s)) as found:
        async for answer in found:
            status = GatewayStatus.model_validate_json(answer)
            told[status.gateway] = status
            if len(told) >= status.gateways:
                break
    return tuple(told.values())


def together(told: Sequence[GatewayStatus]) -> GatewayStatus:
    first = told[0]
    findings = tuple(finding for status in told for finding in status.findings)
    waiting = tuple(call for status in told for call in status.waiting)
    return first.model_copy(update={"findings": findings, "waiting": waiting})
