"""The HTTP calls of operators: drain this process, prune runs, stop everything and let it go on."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import Depends
from pydantic import Field

from agent_service.api.access import Caller
from agent_service.api.body import body_of
from agent_service.api.desk import Switch, SwitchView
from agent_service.api.requests import DrainRequest, Nothing, PruneRequest, StopRequest
from agent_service.archive.pruning import Pruning
from agent_service.archive.retention import Beside, BesideRuns, Pruned
from agent_service.core.waiting import Status
from agent_service.history.plain import View
from agent_service.kill_switch import Draining
from agent_service.trust.identity import by as told_by
from schemas.fields import Instant


class DrainView(View):
    """What is still in hand: model calls that are under way, of what may take `within_s`, in seconds."""

    draining: bool
    model_calls: int
    within_s: float


class DrainCalls:
    """Their docstrings are the API's documentation."""

    def __init__(self, draining: Draining) -> None:
        self._draining = draining

    async def drain(
        self, caller: Caller, request: Annotated[DrainRequest, Depends(body_of(DrainRequest))]
    ) -> DrainView:
        """Have this process end in good order: it takes nothing new, ends what it has in hand, and then itself.

        Model calls that are under way are waited for. What follows from them is left to another agent that shares the
        store, or to the next start.
        """
        self._draining.begin(request.within_s, by=told_by(caller, says=request.by))
        return self._view()

    async def show_drain(self) -> DrainView:
        """Whether this process is being drained, and what it still has in hand."""
        return self._view()

    def _view(self) -> DrainView:
        now = self._draining
        return DrainView(draining=now.begun, model_calls=now.thinking(), within_s=now.within_s)


WITHIN_S = 5.0
REST = 1.0


class GoneView(View):
    """A run that went, or would go, and by which setting."""

    run_id: str
    status: Status
    ended_at: Instant
    rule: str


class PruneView(View):
    """How many runs went by each setting (or would, with `dry_run`), and of how many the artifacts alone; the first
    thousand of them by name. `more`: there is more to go, ask again. `rules`: whether any setting has anything go.
    `trouble`: why files of runs that went are still there; the next pass removes them.
    """

    dry_run: bool
    rules: bool
    runs: Mapping[str, int]
    artifacts: Mapping[str, int]
    listed: tuple[GoneView, ...]
    more: bool
    trouble: str
    dead_letters: Mapping[str, int] = Field(default_factory=dict)
    """How many dead letters, with what is on record of them, by each setting."""
    gateway: Mapping[str, int] = Field(default_factory=dict)
    """How many of each kind in the gateway's ledger, by its settings."""
    not_reached: str = ""
    """Which of these two could not be asked, and what to do."""


class PruneCalls:
    """Its docstrings are the API's documentation."""

    def __init__(self, pruning: Pruning, beside: BesideRuns) -> None:
        self._pruning = pruning
        self._beside = beside

    async def prune(self, _: Caller, request: Annotated[PruneRequest, Depends(body_of(PruneRequest))]) -> PruneView:
        """Have runs go whose time is over, by `agent.keep_runs`; the agent does so by itself once an hour.

        Of a run that went only its tombstone is left: all its paths answer 410, and its `wake_id` begins no other run.
        It takes some seconds at most: with `more` in the answer, ask again. Dead letters, and what the gateway keeps of
        calls, go with the last of these.
        """
        pruned = await (self._pruning.preview() if request.dry_run else self._pruning.prune(WITHIN_S, rest=REST))
        beside = Beside() if pruned.more else await self._beside.prune(dry_run=request.dry_run)
        return view(pruned, beside, rules=self._pruning.has_rules, dry_run=request.dry_run)


def view(pruned: Pruned, beside: Beside, *, rules: bool, dry_run: bool) -> PruneView:
    listed = tuple(
        GoneView(run_id=run.run_id, status=run.status, ended_at=run.at, rule=rule) for run, rule in pruned.listed
    )
    told = {"runs": pruned.runs, "artifacts": pruned.artifacts, "listed": listed, "more": pruned.more}
    told |= {"trouble": pruned.trouble, "dead_letters": beside.dead_letters, "gateway": beside.gateway}
    told["not_reached"] = beside.trouble
    return PruneView(dry_run=dry_run, rules=rules, **told)


class StoppingCalls:
    """Their docstrings are the API's documentation."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    async def stop_all(
        self, caller: Caller, request: Annotated[StopRequest, Depends(body_of(StopRequest))]
    ) -> SwitchView:
        """Stop everything: no run begins, and no turn, model call or tool request, until somebody lets it go on.

        What is under way is not broken off, and its result is recorded. It holds through restarts, and is answered once
        it is durable.
        """
        return await self._switch.stop(request, by=caller)

    async def go_on(self, caller: Caller, request: Annotated[Nothing, Depends(body_of(Nothing))]) -> SwitchView:
        """Let everything go on from where it was. The time that has passed counts against no run."""
        return await self._switch.go_on(request, by=caller)
