"""The timeline of a run: its phases, steps, attempts, waits and people's words, each from when until when.

It grows entry by entry: an entry opens an item, a later one closes it. The words are those of `sayings`; texts of
models and tools are as they came.
"""

from collections.abc import Iterable
from typing import Any

from agent_service.core.events import (
    CallReserved,
    CancelRequested,
    ModelReplied,
    ModelUnavailable,
    SignalReceived,
    StoodStill,
    WakeAccepted,
)
from agent_service.core.phases import Phase, Verification
from agent_service.core.waiting import Sleeping, Status
from agent_service.run.moments import Moment
from agent_service.telling.history.items import ErrorView, Items, ItemStatus, TimelineView, TokensView
from agent_service.telling.history.steps import Steps
from agent_service.telling.history.waits import BY_CHOICE, is_rejected, pause_of, put_off, waits_of
from agent_service.telling.rulings import Ruling, RulingStatus, rulings
from agent_service.telling.sayings import (
    SIGNALS,
    asking,
    cut,
    from_people,
    in_their_words,
    reserved,
    ruled,
    unavailable,
    went_on,
)

_OF_RULINGS: dict[RulingStatus, ItemStatus] = {
    "ok": "ok",
    "unusable": "error",
    "refused": "refused",
    "ignored": "cancelled",
    "outrun": "cancelled",
}
_OF_ENDINGS: dict[Status, ItemStatus] = {Status.DONE: "ok", Status.CANCELLED: "cancelled"}


class Timeline:
    """`seq` is the last entry that it has."""

    def __init__(self) -> None:
        self.seq = 0
        self._state = Status.QUEUED
        self._items = Items()
        self._steps = Steps(self._items)

    def hear(self, moments: Iterable[Moment]) -> None:
        for moment in moments:
            if moment.entry.seq > self.seq:  # else somebody has told it meanwhile
                self._happened(moment)
                self._led_to(moment)
                self.seq, self._state = moment.entry.seq, moment.after.status

    def view(self, run_id: str) -> TimelineView:
        return TimelineView(run_id=run_id, status=self._state, items=self._items.all())

    def _happened(self, moment: Moment) -> None:
        match moment.event:
            case WakeAccepted() as event:
                self._items.begin(
                    "accepted", moment, "accepted", kind="accepted", title="Accepted", text=from_people(event)
                )
            case CallReserved() as event:
                self._reserved(moment, event)
            case ModelReplied() as event:
                self._replied(moment, event)
            case ModelUnavailable() as event:
                self._unavailable(moment, event)
            case CancelRequested() as event:
                self._said(moment, "Cancel", from_people(event))
            case SignalReceived() as event:
                self._said(moment, SIGNALS[event.signal.kind], in_their_words(event))
            case StoodStill() as event:
                self._said(moment, "Goes on", went_on(event))
        self._steps.acted(moment)

    def _led_to(self, moment: Moment) -> None:
        if not moment.ended:
            self._over(moment)
        self._steps.went_on(moment)
        if moment.asked:
            self._ask(moment)
        for pending in moment.sent:
            self._steps.send(moment, pending)
        if moment.put_off or moment.retry:
            self._put_off(moment)
        if moment.waits:
            self._wait(moment, moment.waits)
        if moment.paused:
            self._pause(moment)
        if moment.ended:
            self._end(moment)

    def _over(self, moment: Moment) -> None:
        if moment.after.status is not Status.QUEUED:
            self._items.close("accepted", moment, "ok")
        elif moment.reopened:  # it ended before its turn had come, for which it waits once more
            self._items.go_on("accepted", "accepted")
        if moment.resumed or moment.reopened:
            self._items.close("pause", moment, "refused" if is_rejected(moment) else "ok")
        waits = set(waits_of(moment.after))
        for what in [what for what in self._items.open if what.startswith("wait") and what not in waits]:
            self._items.close(what, moment, "ok")

    # Model calls

    def _ask(self, moment: Moment) -> None:
        asked = moment.after.asking
        if asked is None:
            return
        step = moment.after.step + (asked.phase is Phase.PLAN)
        self._items.begin(
            "call",
            moment,
            f"call:{asked.call}:{moment.entry.seq}",
            kind="phase",
            title=asked.phase.capitalize(),
            text=asking(moment) or f"the model call {asked.call} is made",
            phase=asked.phase,
            call=asked.call,
            step=step or None,
        )

    def _reserved(self, moment: Moment, event: CallReserved) -> None:
        if not moment.after.reserve:  # the call could break a budget, and is not made
            return
        if "call" not in self._items.open:
            self._ask(moment)
        lost = moment.before and moment.after.spent.lost_calls > moment.before.spent.lost_calls
        again = "; made again, for what it brought before was lost with the process that made it" if lost else ""
        self._items.change("call", text=f"made with {reserved(event)} set aside{again}", model=event.model)

    def _replied(self, moment: Moment, reply: ModelReplied) -> None:
        ruling, *along = rulings(moment)
        usage = reply.usage
        tokens = TokensView(input=usage.input_tokens, output=usage.output_tokens, cache_read=usage.cache_read_tokens)
        told = {"model": reply.model, "tokens": tokens, "cost_usd": usage.cost_usd}
        self._items.close("call", moment, _status(ruling), **_decided(moment, ruling), **told)
        for plan in along:
            self._items.begin(
                "plan",
                moment,
                f"call:{reply.call}:plan",
                kind="phase",
                title=plan.phase.capitalize(),
                phase=plan.phase,
                call=reply.call,
                step=plan.step,
                model=reply.model,
                **_decided(moment, plan),
            )
            self._items.close("plan", moment, _status(plan))

    def _unavailable(self, moment: Moment, event: ModelUnavailable) -> None:
        again = event.remedy in ("try_again", "shrink")
        error = ErrorView(error_class=event.error_class, message=event.message, retryable=again)
        self._items.close("call", moment, "error", text=cut(unavailable(event)), error=error)

    # Waits, people, the end

    def _put_off(self, moment: Moment) -> None:
        what, about = put_off(moment)
        self._items.begin(what, moment, f"wait:{moment.entry.seq}", kind="wait", **about)

    def _wait(self, moment: Moment, wait: Sleeping) -> None:
        item = f"wait:{moment.entry.seq}"
        self._items.begin(BY_CHOICE, moment, item, kind="wait", title="Waits", text=cut(wait.why), until=wait.until)

    def _pause(self, moment: Moment) -> None:
        self._items.close("call", moment, "cancelled")
        item = f"pause:{moment.entry.seq}"
        self._items.begin("pause", moment, item, kind="wait", **pause_of(moment.after))

    def _said(self, moment: Moment, title: str, text: str) -> None:
        self._items.begin("said", moment, f"person:{moment.entry.seq}", kind="person", title=title, text=cut(text))
        self._items.close("said", moment, "ok")

    def _end(self, moment: Moment) -> None:
        after = moment.after
        for what in tuple(self._items.open):
            self._items.close(what, moment, "cancelled")
        status = _OF_ENDINGS.get(after.status, "error")
        failed = ErrorView(error_class=after.ending_class, message=after.reason, retryable=False)
        error = failed if status == "error" else None
        title, text = after.status.capitalize(), cut(after.reason)
        item = f"ending:{after.reopened}" if after.reopened else "ending"
        self._items.begin("ending", moment, item, kind="ending", title=title, text=text, error=error)
        self._items.close("ending", moment, status)


def _status(ruling: Ruling) -> ItemStatus:
    match ruling.decision:
        case Verification(holds=False) if ruling.status == "ok":
            return "refused"
    return _OF_RULINGS[ruling.status]


def _decided(moment: Moment, ruling: Ruling) -> dict[str, Any]:
    error = None
    if ruling.why:
        again = moment.after.asking is not None
        error = ErrorView(error_class=ruling.error_class or "", message=ruling.why, retryable=again)
    return {"text": cut(ruled(ruling)), "error": error}
