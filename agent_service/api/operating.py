"""Operations on the whole agent: kill switch, drain, pruning, usage, keys."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Annotated

from pydantic import Field

from agent_service.api.requests import Caller, DrainRequest, Nothing, PruneRequest, Query, StopRequest
from agent_service.archive.pruning import Pruner
from agent_service.core.waiting import Status
from agent_service.history.text import View
from agent_service.kill_switch import Draining, HaltControl
from agent_service.store.lines import Sum
from agent_service.store.runs import RunStore
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
    """The kill switch. `by`, `since` and `reason` are empty or null while nothing is stopped."""

    stopped: bool
    by: str
    since: Instant | None
    reason: str


class DrainView(View):
    """The drain of this process, with its open model calls, which have `within_s` seconds."""

    draining: bool
    model_calls: int
    within_s: float


class GoneView(View):
    """A run that was deleted, or would be, and the setting for it."""

    run_id: str
    status: Status
    ended_at: Instant
    rule: str


class PruneView(View):
    """Numbers of runs deleted by each setting (or to be deleted, with `dry_run`), and of runs that lost only their
    artifacts; the first thousand are listed. `more`: ask again, there is more to delete. `rules` is true if any setting
    deletes. `trouble` says why files of deleted runs are left; the next pass removes them.
    """

    dry_run: bool
    rules: bool
    runs: Mapping[str, int]
    artifacts: Mapping[str, int]
    listed: tuple[GoneView, ...]
    more: bool
    trouble: str
    gateway: Mapping[str, int] = Field(default_factory=dict)
    """Deleted rows of the gateway's ledger by kind, by its settings."""
    not_reached: str = ""
    """The reason why no gateway deleted rows, and a remedy."""


class UsageQuery(Query):
    """The days of a usage report."""

    days: Annotated[int, Field(ge=1, le=92)] = 14
    """Number of days, up to today."""


class UsageOfDay(View):
    """Sums over the runs that were accepted on a day (UTC); the cost of a run is that of its whole life."""

    day: date
    sums: tuple[Sum, ...]


class UsageDays(View):
    """Newest first."""

    days: tuple[UsageOfDay, ...]


@dataclass(slots=True)
class OperatorCalls:
    store: RunStore
    halt_control: HaltControl
    signing: Signing
    draining: Draining
    pruning: Pruner
    prune_rows: Callable[..., Awaitable[GatewayPruned]]
    now: Callable[[], datetime] = utc_now

    async def show_usage(self, query: UsageQuery) -> UsageDays:
        """Numbers and costs of runs for each day, by status, failure, tool and model."""
        today = self.now().date()
        days = [today - timedelta(days=ago) for ago in range(query.days)]
        return UsageDays(days=tuple([UsageOfDay(day=day, sums=tuple(await self.store.sums(day))) for day in days]))

    async def drain(self, caller: Caller, request: DrainRequest) -> DrainView:
        """The process accepts no work, completes its open work, and ends.

        It waits for open model calls. Their consequences are left to another agent that shares the store, or to the
        next start.
        """
        self.draining.begin(request.within_s, by=told_by(caller.by, says=request.by))
        return await self.show_drain()

    async def show_drain(self) -> DrainView:
        """The drain of this process."""
        now = self.draining
        return DrainView(draining=now.begun, model_calls=now.thinking(), within_s=now.within_s)

    async def prune(self, request: PruneRequest) -> PruneView:
        """Deletes by `agent.keep_runs`, as the agent does once an hour by itself.

        Only the tombstone of a deleted run is left: all its paths answer 410, and its `wake_id` starts no other run. A
        request takes some seconds at most: with `more` in the answer, ask again. The last request has the gateway
        delete rows of its ledger.
        """
        pruned = await (self.pruning.preview() if request.dry_run else self.pruning.prune(WITHIN_S, rest=REST))
        rows = GatewayPruned(rows={}) if pruned.more else await self.prune_rows(dry_run=request.dry_run)
        return PruneView(
            dry_run=request.dry_run,
            rules=self.pruning.rules.delete_runs,
            runs=pruned.runs,
            artifacts=pruned.artifacts,
            listed=tuple(
                GoneView(run_id=run.run_id, status=run.status, ended_at=run.at, rule=rule)
                for run, rule in pruned.listed
            ),
            more=pruned.more,
            trouble=pruned.trouble,
            gateway=rows.rows,
            not_reached=f"the gateway's ledger: {rows.trouble}" if rows.trouble else "",
        )

    async def stop_all(self, caller: Caller, request: StopRequest) -> SwitchView:
        """No run, turn, model call or tool request starts until a person resumes.

        Open work is not aborted, and its results are recorded. The stop survives restarts; the answer comes once it is
        durable. The first stop counts.
        """
        by = told_by(caller.by, says=request.by)
        return _view(await self.halt_control.stop(by=by, reason=request.reason or ""))

    async def go_on(self, caller: Caller, request: Nothing) -> SwitchView:
        """All runs go on where they were. The time of the stop counts against no run."""
        return _view(await self.halt_control.go_on(by=told_by(caller.by, says=request.by)))

    async def keys(self, request: KeysQuery) -> AgentKeys:
        if request.progress:
            self.signing.want_progress()
        return self.signing.public_keys()


def _view(halt: Halt | None) -> SwitchView:
    if halt is None or halt.over:
        return SwitchView(stopped=False, by="", since=None, reason="")
    return SwitchView(stopped=True, by=halt.by, since=halt.since, reason=halt.reason)
