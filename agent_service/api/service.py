"""Operations on the whole agent: health, tools, metrics, the caller; kill switch, drain, pruning, usage, keys."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from operator import attrgetter
from typing import Literal, get_args

from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from agent_service.api.requests import Caller, DrainRequest, Nothing, PruneRequest, StopRequest
from agent_service.archive.pruning import Pruner
from agent_service.core.waiting import Status
from agent_service.history.text import View, ok, warning, wrong
from agent_service.kill_switch import Draining, HaltControl
from agent_service.run.ports import Skills
from agent_service.settings import AgentSettings
from agent_service.trust.identity import by as told_by
from agent_service.trust.proofs import Signing
from groundwork.service.errors import Failure, TryAgain, in_time
from groundwork.service.machine import monotonic, utc_now
from groundwork.service.program import installed_version
from groundwork.service.store_folder import known_id
from groundwork.telemetry.metrics import CONTENT_TYPE
from schemas.catalog import ToolOffer
from schemas.fields import Instant
from schemas.operations import Scope
from schemas.signing import AgentKeys, KeysQuery
from schemas.status import Finding, GatewayPruned, Halt
from schemas.values import dataclass

WITHIN_S = 4.0
FRESH_S = 2.0
READY_WITHIN_S = 3.0
PRUNE_S, REST = 5.0, 1.0
"""Duration of a pruning request, and its pauses relative to its work."""

Part = Literal["agent", "gateway", "nats", "ductile", "model", "store"]
Probe = Callable[[], Awaitable[Sequence[Finding]]]
Readiness = Callable[[], Awaitable[Mapping[str, str]]]

_READY: Mapping[str, tuple[Part, str, str]] = {
    "bus": ("nats", "the agent hears the bus and holds its lease", "see the agent's log"),
    "store": ("store", "it can be read and written", "see the agent's log: repair its disk, or make room there"),
    "halt": ("agent", "it is not stopped", "resume everything once the reason is settled"),
    "skills": ("gateway", "tools are on offer", "start the gateway"),
    "room": ("nats", "runs have room on bus and disk", "mend what the text names; runs are then accepted again"),
    "model": ("model", "no run has met trouble with it in the last minute", "correct the section agent.model"),
}
"""Checks of readiness: part, text if all is well, remedy if not."""


log = logging.getLogger(__name__)


class CheckView(Finding):
    """One check. `wrong` means that work cannot go on. A check that is ok has no `remedy`."""

    part: Part


class HealthView(View):
    """Findings at the instant `at`, at most seconds ago; those on the agent are current."""

    checks: tuple[CheckView, ...]
    at: Instant


async def _checked(part: Part, probe: Probe) -> Sequence[CheckView]:
    remedy = "ask again; see the agent's log"
    try:
        async with asyncio.timeout(WITHIN_S):
            found = await probe()
    except TimeoutError:
        found = [warning(part, f"it did not report its status within {WITHIN_S:g} s", remedy=remedy)]
    except Failure as error:
        found = [wrong(part, str(error), remedy=remedy)]
    except Exception as error:  # the other parts still report
        log.exception("a part cannot report its status", extra={"part": part})
        found = [warning(part, f"it cannot report its status ({type(error).__name__})", remedy=remedy)]
    return [CheckView(part=_part_of(finding, part), **dict(finding)) for finding in found]


def _part_of(finding: Finding, asked: Part) -> Part:
    if finding.name.startswith("ductile"):
        return "ductile"
    return _READY[finding.name][0] if asked == "agent" and finding.name in _READY else asked


class WhoView(View):
    """`caller` is the name of the token, or `everybody` if no token is needed (`tokens` is false).

    `store` is the id of the agent's store; `member` is the name of this agent if several share it, else null;
    `trace_url` is the address of traces, with `{trace_id}` in it, or null.
    """

    caller: str
    scopes: tuple[Scope, ...]
    tokens: bool
    version: str
    store: str
    member: str | None
    trace_url: str | None


class Alive(BaseModel):
    """The process lives."""

    alive: Literal[True] = True


class Ready(BaseModel):
    """`checks` has `ok` or the trouble of each part that the service needs. `store` is the id of its store."""

    ready: bool
    checks: dict[str, str]
    store: str

    @property
    def http_status(self) -> int:
        return 200 if self.ready else 503


class ToolView(ToolOffer):
    """A tool as its executor offers it, with the operator's approvals. `present`: the executor answers now."""

    present: bool


class ToolsView(View):
    """Tools that runs may use, limited by `agent.tools`. `problems` names offers left out, or silent executors."""

    tools: tuple[ToolView, ...]
    problems: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class ServiceCalls:
    """`metrics_text` renders /metrics, `problems` lists offers that are left out. `probes` are run at most every few
    seconds. `member` is the name of this agent among several."""

    settings: AgentSettings
    readiness: Readiness
    metrics_text: Callable[[], Awaitable[bytes]]
    skills: Skills
    problems: Callable[[], Sequence[str]]
    probes: Mapping[Part, Probe]
    member: str | None
    _checks: Sequence[CheckView] = ()
    _checked_at: datetime = datetime.min.replace(tzinfo=UTC)
    _fresh_until: float = float("-inf")
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def whoami(self, caller: Caller) -> WhoView:
        """The caller, its scopes, and the service that answers."""
        return WhoView(
            caller=caller.token or "everybody",
            scopes=tuple(scope for scope in get_args(Scope) if scope in caller.scopes),
            tokens=bool(self.settings.http.tokens),
            version=installed_version(),
            store=known_id(self.settings.store),
            member=self.member,
            trace_url=self.settings.trace_url,
        )

    async def healthz(self) -> Alive:
        """The process lives and answers."""
        return Alive()

    async def readyz(self) -> Ready:
        """Checks that runs can be accepted and go on now."""
        try:
            async with in_time("it", READY_WITHIN_S):
                found = await self.readiness()
        except TryAgain as late:
            found = {"agent": str(late)}
        checks = {name: wrong or "ok" for name, wrong in found.items()}
        return Ready(ready=not any(found.values()), checks=checks, store=known_id(self.settings.store))

    async def show_health(self) -> HealthView:
        """Health of agent, gateway, NATS, Ductile, model and store."""
        async with self._asking:
            if monotonic() >= self._fresh_until:  # the clock may be set back
                found = await asyncio.gather(*map(_checked, self.probes, self.probes.values()))
                self._checks, self._checked_at = [check for checks in found for check in checks], utc_now()
                self._fresh_until = monotonic() + FRESH_S
            return HealthView(checks=(*self._checks, *await _checked("agent", self._ready)), at=self._checked_at)

    async def _ready(self) -> Sequence[Finding]:
        return [
            wrong(name, trouble, remedy=_READY[name][2]) if trouble else ok(name, _READY[name][1])
            for name, trouble in (await self.readiness()).items()
        ]

    async def metrics(self) -> PlainTextResponse:
        """Metrics in the Prometheus text format."""
        return PlainTextResponse(await self.metrics_text(), media_type=CONTENT_TYPE)

    async def list_tools(self) -> ToolsView:
        """Tools by name, each with its commands and their arguments."""
        try:
            offers = (await self.skills.catalog()).tools
        except TryAgain as nothing:
            return ToolsView(tools=(), problems=tuple(self.problems()) or (str(nothing),))
        present = self.skills.present()
        tools = (ToolView(**dict(offer), present=offer.executor in present) for offer in offers)
        return ToolsView(tools=tuple(sorted(tools, key=attrgetter("name"))), problems=tuple(self.problems()))


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


@dataclass(slots=True)
class OperatorCalls:
    halt_control: HaltControl
    signing: Signing
    draining: Draining
    pruning: Pruner
    prune_rows: Callable[..., Awaitable[GatewayPruned]]

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
        pruned = await (self.pruning.preview() if request.dry_run else self.pruning.prune(PRUNE_S, rest=REST))
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
