"""The algorithm: load, decide, commit, perform, until the run rests. It alone decides new events.

A run is locked for load, decide and commit, but not while the model thinks: a cancel must end it meanwhile. The store's
version guards against other processes; the loser loads and decides again. An event that is ignored is acknowledged, so
only the newest state of any process may ignore it. A model call that another process has reserved belongs to that
process.

A bug never leaves a run standing: an event that cannot be decided or committed ends it as failed (`internal`); effects
that cannot be performed are tried again first. A bug in a cancel or signal is raised to the caller, and the run goes
on.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import field
from functools import partial
from weakref import WeakValueDictionary

from agent_service.core.decide import decide
from agent_service.core.events import Event, EventFacts, Transition, TurnBroke, WakeAccepted
from agent_service.core.facts import CallAsked, CallReserved
from agent_service.core.state import RunState
from agent_service.core.waiting import Ended, NeedsPerson
from agent_service.errors import Damaged, VersionMoved
from agent_service.kill_switch import KillSwitch
from agent_service.run import journal, messages
from agent_service.run.inbound import CURRENT_MESSAGE
from agent_service.run.journal import Commit
from agent_service.run.messages import OutgoingMessage
from agent_service.run.model_calls import CallEvent, ModelCaller
from agent_service.run.outbox import Outbox, Publisher
from agent_service.run.ports import Clock
from agent_service.store.runs import RunStore
from groundwork.service.errors import Fatal, TryAgain
from schemas import subjects
from schemas.values import dataclass

CONFLICTS_BEFORE_GIVING_UP = 10
BREAKS_BEFORE_THE_END = 3
"""Failures in a row of a run's effects before the run ends: the cause may pass."""

log = logging.getLogger(__name__)

Messages = Callable[[], Iterable[OutgoingMessage]]
Observer = Callable[[Commit], object]


async def _nothing(_: object) -> None: ...


@dataclass(slots=True)
class Turns:
    store: RunStore
    publisher: Publisher
    model_caller: ModelCaller
    clock: Clock
    observers: list[Observer]
    """Called after every durable commit."""
    outbox: Outbox = field(init=False)
    again: Callable[[str], Awaitable[None]] = field(init=False, default=_nothing)
    """Performs the effects that earlier deliveries of the current message left."""
    settle_children: Callable[[RunState], Awaitable[None]] = field(init=False, default=_nothing)
    """Performs what a run owes its children or its parent."""
    accepted: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    """Set when a run was accepted."""
    kill_switch: KillSwitch = field(init=False)
    _breaks: Counter[str] = field(init=False, default_factory=Counter)
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(init=False, default_factory=WeakValueDictionary)

    def __post_init__(self) -> None:
        self.outbox, self.kill_switch = Outbox(self.store.mark_dispatched), self.publisher.kill_switch

    async def accept(self, event: WakeAccepted, digest: str) -> tuple[str, Transition | None]:
        """Returns the id of a durable run and the transition to perform (None for a known wake). `digest`: of the
        request. Raises WakeConflict for a known wake id with another digest, and TryAgain.
        """
        transition = decide(None, event)
        commit = journal.commit_of(None, transition)
        run_id = await self.store.accept(commit, digest)
        if run_id != event.run_id:
            return run_id, None
        self._committed(commit)
        self.accepted.set()
        return run_id, transition

    async def state(self, run_id: str) -> RunState | None:
        """Raises Damaged."""
        run = await self.store.load(run_id)
        return run.state if run else None

    async def current(self, run_id: str) -> RunState | None:
        """State after the newest commit of any process. Raises Damaged, TryAgain."""
        state = await self.state(run_id)
        if state and not await self.store.is_current(run_id, state.version):
            state = await self.state(run_id)
        return state

    async def take(self, run_id: str, event: Event, *, made_of: RunState | None = None) -> Transition:
        """One turn, until the run rests. Raises TryAgain if `event` is not committed, and VersionMoved if it must be
        made again from a later state than `made_of`.
        """
        transition = await self.commit(run_id, event, made_of, ends=True)
        await self.follow(transition)
        return transition

    async def commit(
        self, run_id: str, event: Event, made_of: RunState | None = None, *, ends: bool = False
    ) -> Transition:
        """First half of a turn; `follow` is the second. `ends`: a bug over the event ends the run."""
        try:
            async with self._locks.setdefault(run_id, asyncio.Lock()):
                return await self._commit(run_id, event, made_of)
        except (TryAgain, Fatal, Damaged, VersionMoved):
            raise
        except Exception as error:
            if not ends:
                raise
            return await self._end(run_id, error, f"an event of kind {type(event).__name__}")

    async def _commit(self, run_id: str, event: Event, made_of: RunState | None) -> Transition:
        for _ in range(CONFLICTS_BEFORE_GIVING_UP):
            run = await self.store.load(run_id)
            if run and made_of and run.state.version != made_of.version:
                await self._check(event, made_of)
            decided = decide(run.state if run else None, event)
            if run is None or decided.ignored:
                if run and not await self.store.is_current(run_id, run.state.version):
                    continue
                facts = {"run_id": run_id, "event": type(event).__name__, "why": str(decided.ignored)}
                log.log(logging.INFO if run else logging.WARNING, "ignored", extra=facts)
                return decided
            asks_here = CallAsked in decided.kinds and not (self.outbox.queues and CURRENT_MESSAGE.get() is None)
            transition = self.model_caller.reserve(decided) if asks_here else decided
            try:
                commit = journal.commit_of(run, transition)
                await self.store.commit(commit)
            except BaseException as error:
                if transition is not decided and transition.state:
                    self.model_caller.abandon_all(run_id, transition.state.calls)
                if isinstance(error, VersionMoved):
                    continue
                raise
            self._committed(commit)
            return transition
        raise TryAgain(f"run {run_id}: others keep moving it on")

    async def _check(self, event: Event, made_of: RunState) -> None:
        """Raises VersionMoved for an event of an older state that no longer holds: a result is judged by the pending
        requests, and a call may belong to another process by now.
        """
        run_id, made_at = made_of.run_id, made_of.version
        if not isinstance(event, CallEvent) or await self.store.superseded(run_id, event.call, made_at):
            raise VersionMoved(f"run {run_id} stands elsewhere than at version {made_at}, which this was made of")

    def follow(self, transition: Transition | None) -> Awaitable[None]:
        """Second half of a turn. Several agents queue one that no message drives."""
        if transition is None or (state := transition.state) is None:
            return _nothing(None)
        if transition.ignored:
            return self.again(state.run_id)
        if self.outbox.queues and CURRENT_MESSAGE.get() is None:
            return _nothing(None)
        owed = partial(messages.of_entry, state, transition, state.version)
        return self.resume(state, (state.version,), owed, asks=asks_the_model(transition))

    async def resume(self, state: RunState, seqs: Collection[int], owed: Messages, *, asks: bool) -> None:
        """Performs the effects of entries `seqs` and continues the turn, until the run rests. `asks`: including the
        model call.
        """
        while True:
            try:
                await self._publish(state, owed())
                calling = state.active_call if asks else None  # a postponed call is made by its timer
                answer = await self.model_caller.think(state, calling) if calling else None
            except TryAgain as error:
                self.outbox.postpone(state.run_id, seqs, error)
                return
            except Fatal:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the run must not stand still
                transition = await self._broke(state.run_id, seqs, error)
            else:
                try:
                    transition = await self._commit_reply(state, answer) if answer else None
                except TryAgain as error:
                    self.outbox.postpone(state.run_id, seqs, error)
                    return
                self.outbox.done(state.run_id, seqs)
                self._breaks.pop(state.run_id, None)
            if transition is None or transition.state is None or transition.ignored:
                return
            state, seqs, asks = transition.state, (transition.state.version,), asks_the_model(transition)
            owed = partial(messages.of_entry, state, transition, state.version)

    async def _broke(self, run_id: str, seqs: Collection[int], error: Exception) -> Transition | None:
        newest = max(seqs)
        self._breaks[run_id] += 1
        if self._breaks[run_id] < BREAKS_BEFORE_THE_END:
            log.error("broke, to be tried again", exc_info=error, extra={"run_id": run_id, "entry": newest})
            self.outbox.postpone(run_id, seqs)
            return None
        try:
            transition = await self._end(run_id, error, f"what entry {newest} asks for")
        except TryAgain as not_stored:
            self.outbox.postpone(run_id, seqs, not_stored)
            return None
        if transition.ignored:
            self.outbox.postpone(run_id, seqs)
        else:
            self.outbox.done(run_id, seqs)
            del self._breaks[run_id]
        return transition

    async def _end(self, run_id: str, error: Exception, over: str) -> Transition:
        log.error("broke, the run ends", exc_info=error, extra={"run_id": run_id, "over": over})
        why = f"a fault of the agent ({type(error).__name__}) over {over}: report it with what the agent's log says"
        return await self.commit(run_id, TurnBroke(at=self.clock.now(), reason=why))

    async def _commit_reply(self, state: RunState, answer: CallEvent) -> Transition | None:
        """Raises TryAgain if the reply may have been stored without an answer, and its effects were not performed."""
        run_id, committed, unanswered = state.run_id, None, None
        while True:
            try:
                committed = await self.commit(run_id, answer, state, ends=True)
            except TryAgain as error:
                log.warning("a reply waits for the store", extra={"run_id": run_id, "why": str(error)})
                unanswered = error
                await asyncio.sleep(error.delay_s)
                continue
            except VersionMoved:
                log.info("another process makes the call", extra={"run_id": run_id, "call": answer.call})
            if committed is None or committed.ignored:
                self.model_caller.abandon(run_id, answer.call)  # so the call is not made
                if unanswered:
                    raise unanswered
            if committed and committed.ignored:
                await self.again(run_id)
            return committed

    async def _publish(self, state: RunState, owed: Iterable[OutgoingMessage]) -> None:
        stands = state.waiting
        if isinstance(stands, Ended | NeedsPerson):
            self.model_caller.abandon_all(state.run_id, state.calls)
        for message in owed:
            now = await self.store.load(state.run_id) if message.subject.startswith(subjects.TOOL_REQUEST) else None
            # a cancel does not wait for the effects of earlier entries
            if now is None or now.state is state or not now.state.final:
                await self.publisher.publish(message, at=state.updated_at)
        if isinstance(stands, Ended) or state.brief.may_have_children:
            await self.settle_children(state)

    def _committed(self, commit: Commit) -> None:
        self.outbox.begin(commit.entry.run_id, (commit.entry.seq,))
        for observe in self.observers:
            try:
                observe(commit)
            except Exception:  # an observer's error must not fail the turn
                log.exception("an observer of a commit failed", extra={"run_id": commit.entry.run_id})


def asks_the_model(outcome: EventFacts) -> bool:
    """True if the entry reserves or requests a model call."""
    return CallAsked in outcome.kinds or isinstance(outcome.event, CallReserved)
