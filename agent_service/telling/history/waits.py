"""The waits of a timeline: for a retry, an instant, or a person."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from agent_service.core.state import RunState
from agent_service.core.tools.attempts import Pending
from agent_service.core.tools.flights import flights
from agent_service.core.waiting import Approval, NeedsPerson, Question, Sleeping, Thinking, under_way
from agent_service.run.moments import Moment
from agent_service.telling.acts import item_of
from agent_service.telling.rests import proposed
from agent_service.telling.sayings import asking, cut, sending
from agent_service.telling.tasks import depth_of

OF_THE_MODEL = "wait for the model"
BY_CHOICE = "wait by choice"


def waits_of(run: RunState) -> Iterator[str]:
    match under_way(run.waiting):
        case Thinking(retry_at=datetime()):
            yield OF_THE_MODEL
        case Sleeping():
            yield BY_CHOICE
    yield from (_of(flight.pending) for flight in flights(run.waiting) if flight.retry_at)


def put_off(moment: Moment) -> tuple[str, dict[str, Any]]:
    what, about = OF_THE_MODEL, dict[str, Any]()
    if moment.retry:
        pending = moment.retry.pending
        what = _of(pending)
        about |= {"step": pending.step, "task": pending.task or None, "round": pending.round or None}
        about |= {"attempt": pending.attempt, "parent": item_of(pending.name), "depth": depth_of(pending.task) + 1}
        about |= {"tool": pending.action.tool, "command": pending.action.command, "until": moment.retry.retry_at}
    if moment.put_off:
        asked, at = moment.put_off
        about |= {"phase": asked.phase, "call": asked.call, "until": at}
    return what, about | {"title": "Tries again later", "text": sending(moment) or asking(moment)}


def pause_of(run: RunState) -> dict[str, Any]:
    match run.waiting:
        case NeedsPerson(ask=Approval(proposal=proposal, reason=why), expires_at=at):
            return {"title": f"Asks for approval of {proposed(proposal)}", "text": cut(why), "until": at}
        case NeedsPerson(ask=Question(ask=ask), expires_at=at):
            return {"title": "Asks a person", "text": cut(ask.question), "until": at}
    return {"title": "Paused", "text": cut(f"{run.reason} ({run.ending_class})")}


def is_rejected(moment: Moment) -> bool:
    new = moment.after.rulings[len(moment.before.rulings) :] if moment.before else ()
    return any(ruling.verdict != "approved" for ruling in new)


def _of(pending: Pending) -> str:
    return f"wait of {item_of(pending.name)}"
