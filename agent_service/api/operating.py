"""Operations on the whole agent: stop and resume everything, drain this process, delete expired runs; usage, keys."""

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Annotated, Protocol

from pydantic import Field

from agent_service.api.requests import Caller, DrainRequest, Nothing, PruneRequest, Query, StopRequest
from agent_service.archive.pruning import Pruner
from agent_service.archive.retention import PruneReport
from agent_service.core.waiting import Status
from agent_service.history.text import View
from agent_service.kill_switch import Draining, HaltControl
from agent_service.run.lines import Sum
from agent_service.store.sqlite import RunStore
from agent_service.trust.identity import by as told_by
from agent_service.trust.proofs import Signing
from groundwork.service.machine import utc_now
from schemas.fields import Instant
from schemas.signing import AgentKeys, KeysQuery
from schemas.status import GatewayPruned, Halt
from schemas.values import dataclass

WITHIN_S = 5.0
REST = 1.0


class SwitchView(View):
    """Whether everything is stopped: by whom, since when and why. Empty, and null, while all goes on."""

    stopped: bool
    by: str
    since: Instant | None
    reason: str


class DrainView(View):
    """The model calls under way in this process, which may take `within_s` seconds."""

    draining: bool
    model_calls: int
    within_s: float


class GoneView(View):
    """A run that was deleted, or would be, and by which setting."""

    run_id: str
    status: Status
    ended_at: Instant
    rule: str


class PruneView(View):
    """How many runs were deleted by each setting (or would be, with `dry_run`), and of how many the artifacts alone;
    the first thousand of them by name. `more`: there is more to delete, ask again. `rules`: whether any setting
    deletes. `trouble`: why files of deleted runs are still there; the next pass removes them.
    """

    dry_run: bool
    rules: bool
    runs: Mapping[str, int]
    artifacts: Mapping[str, int]
    listed: tuple[GoneView, ...]
    more: bool
    trouble: str
    gateway: Mapping[str, int] = Field(default_factory=dict)
    """How many of each kind in the gateway's ledger, by its settings."""
    not_reached: str = ""
    """Why the gateway could not be asked, and what to do."""


class UsageQuery(Query):
    """Which days."""

    days: Annotated[int, Field(ge=1, le=92)] = 14
    """How many, until today."""


class UsageOfDay(View):
    """Sums over the runs that were accepted on a day (UTC); the cost of a run is that of its whole life."""

    day: date
    sums: tuple[Sum, ...]


class UsageDays(View):
    """Newest first."""

    days: tuple[UsageOfDay, ...]


class PruneRows(Protocol):
    """The gateway's rows."""

    async def __call__(self, *, dry_run: bool) -> GatewayPruned: ...


@dataclass(slots=True)
class OperatorCalls:
    store: RunStore
    draining: Draining
    pruning: Pruner
    rows: PruneRows
    now: Callable[[], datetime] = utc_now

    async def show_usage(self, query: UsageQuery) -> UsageDays:
        """Of each day: how many runs there were of each status, failure, tool and model, and what they cost."""
        today = self.now().date()
        days = [today - timedelta(days=ago) for ago in range(query.days)]
        return UsageDays(days=tuple([UsageOfDay(day=day, sums=tuple(await self.store.sums(day))) for day in days]))

    async def drain(self, caller: Caller, request: DrainRequest) -> DrainView:
        """This process takes nothing new, ends what it has in hand, and then itself.

        Model calls that are under way are waited for. What follows from them is left to another agent that shares the
        store, or to the next start.
        """
        self.draining.begin(request.within_s, by=told_by(caller.by, says=request.by))
        return await self.show_drain()

    async def show_drain(self) -> DrainView:
        """Whether this process is being drained."""
        now = self.draining
        return DrainView(draining=now.begun, model_calls=now.thinking(), within_s=now.within_s)

    async def prune(self, request: PruneRequest) -> PruneView:
        """By `agent.keep_runs`; the agent does so by itself once an hour.

        Of a deleted run only its tombstone is left: all its paths answer 410, and its `wake_id` begins no other run. It
        takes some seconds at most: with `more` in the answer, ask again. The last of these has the gateway delete what
        it keeps of calls.
        """
        pruned = await (self.pruning.preview() if request.dry_run else self.pruning.prune(WITHIN_S, rest=REST))
        rows = GatewayPruned(rows={}) if pruned.more else await self.rows(dry_run=request.dry_run)
        return prune_view(pruned, rows, rules=self.pruning.has_rules, dry_run=request.dry_run)


class SwitchCalls:
    def __init__(self, halting: HaltControl, signing: Signing) -> None:
        self._halting = halting
        self._signing = signing

    async def stop_all(self, caller: Caller, request: StopRequest) -> SwitchView:
        """No run begins, and no turn, model call or tool request, until a person lets it go on.

        What is under way is not broken off, and its result is recorded. It holds through restarts, and is answered once
        it is durable. The first stop counts.
        """
        by = told_by(caller.by, says=request.by)
        return _view(await self._halting.stop(by=by, reason=request.reason or ""))

    async def go_on(self, caller: Caller, request: Nothing) -> SwitchView:
        """Everything goes on from where it was. The time that has passed counts against no run."""
        return _view(await self._halting.go_on(by=told_by(caller.by, says=request.by)))

    async def keys(self, request: KeysQuery) -> AgentKeys:
        if request.progress:
            self._signing.want_progress()
        return self._signing.public_keys()


def _view(halt: Halt | None) -> SwitchView:
    if halt is None or halt.over:
        return SwitchView(stopped=False, by="", since=None, reason="")
    return SwitchView(stopped=True, by=halt.by, since=halt.since, reason=halt.reason)


def prune_view(pruned: PruneReport, rows: GatewayPruned, *, rules: bool, dry_run: bool) -> PruneView:
    listed = tuple(
        GoneView(run_id=run.run_id, status=run.status, ended_at=run.at, rule=rule) for run, rule in pruned.listed
    )
    return PruneView(
        dry_run=dry_run,
        rules=rules,
        runs=pruned.runs,
        artifacts=pruned.artifacts,
        listed=listed,
        more=pruned.more,
        trouble=pruned.trouble,
        gateway=rows.rows,
        not_reached=f"the gateway's ledger: {rows.trouble}" if rows.trouble else "",
    )
