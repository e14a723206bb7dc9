"""Requests to the gateway over the bus: its status, its verdict on callback addresses, pruning of its ledger."""

import asyncio
import json
from collections.abc import Sequence

from nats.aio.msg import Msg
from pydantic import ValidationError

from agent_service.history.text import wrong
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.machine import monotonic
from schemas import subjects
from schemas.bounded import json_object
from schemas.status import Finding, GatewayPruned, GatewayPruneRequest, GatewayStatus

FRESH_S, FINDINGS_FRESH_S = 10.0, 2.0
FLAW_WITHIN_S = 3.0
STATUS_WITHIN_S = 3.5
PRUNED_WITHIN_S = 10.0
HOURLY = "a gateway that runs does it once an hour"


async def callback_flaw(link: NatsLink, url: str) -> str:
    """Reason why the gateway would not send there; empty if there is none, or no gateway answers."""
    question = json.dumps({"url": url}).encode()
    try:
        answer = json_object(await link.request(subjects.CALLBACK, question, timeouts_s=(FLAW_WITHIN_S,))) or {}
    except Failure:
        return ""
    return str(answer.get("flaw") or "")


async def prune_rows(link: NatsLink, *, dry_run: bool) -> GatewayPruned:
    """Has the gateway delete expired rows of its ledger. `trouble` of the result says why no gateway did."""
    question = GatewayPruneRequest(dry_run=dry_run).model_dump_json().encode()
    try:
        answer = await link.request(subjects.PRUNE, question, timeouts_s=(PRUNED_WITHIN_S,))
        return GatewayPruned.model_validate_json(answer)
    except Failure as error:
        return GatewayPruned(rows={}, trouble=f"no gateway answers ({error}); {HOURLY}")
    except ValidationError:
        why = "the gateway's answer cannot be read: it is of another version"
        return GatewayPruned(rows={}, trouble=f"{why}; {HOURLY}")


class GatewayMonitor:
    """Caches the status for a few seconds, because the gateway asks its Ductile for it."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self._status: GatewayStatus | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def step_trouble(self, executor: str, *, run_id: str, step: int) -> str:
        """Reason why the executor has not begun the step; empty if there is none or it does not say."""
        status = await self.status()
        if status is None or status.executor != executor:
            return ""
        waits = [call.why for call in status.waiting if (call.run_id, call.step) == (run_id, step)]
        return "; ".join(waits) or "; ".join(
            f"{found.name}: {found.text}" for found in status.findings if found.mark == "wrong"
        )

    async def status(self, fresh_s: float = FRESH_S) -> GatewayStatus | None:
        """Status of at most that age; None while no gateway answers."""
        async with self._asking:
            if monotonic() - self._asked_at > fresh_s:
                try:
                    self._status = merged(await statuses(self._link, within_s=STATUS_WITHIN_S))
                except (Failure, ValidationError):
                    self._status = None
                self._asked_at = monotonic()
            return self._status

    async def findings(self) -> tuple[Finding, ...]:
        status = await self.status(FINDINGS_FRESH_S)
        if status is None:
            return (wrong("gateway", "no gateway reports its status", remedy="start the gateway"),)
        return status.findings


async def statuses(link: NatsLink, *, within_s: float) -> Sequence[GatewayStatus]:
    """Status of each gateway. Raises Failure if none answers in time, and ValidationError if no answer can be read."""
    found, unreadable = dict[str, GatewayStatus](), list[ValidationError]()

    def waits_for_more(answer: Msg) -> bool:
        try:
            status = GatewayStatus.model_validate_json(answer.data)
        except ValidationError as error:
            is_nobody = (answer.headers or {}).get("Status") == "503"
            unreadable.extend([] if is_nobody else [error])
            return not is_nobody
        found[status.gateway] = status
        return len(found) < status.gateways

    try:
        await link.request(subjects.STATUS, b"", timeouts_s=(within_s,), more_follow=waits_for_more)
    except TryAgain:
        if not found and not unreadable:
            raise
    if not found:
        raise unreadable[0]
    return tuple(found.values())


def merged(status: Sequence[GatewayStatus]) -> GatewayStatus:
    findings = tuple(finding for one in status for finding in one.findings)
    waiting = tuple(call for one in status for call in one.waiting)
    return status[0].model_copy(update={"findings": findings, "waiting": waiting})
