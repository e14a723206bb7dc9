"""What people and a model that turns to them add to the cues: questions, waits, approvals, answers."""

from datetime import datetime
from typing import Any

from agent_service.core.events import Event
from agent_service.core.phases import Ask, Wait
from agent_service.core.waiting import ForApproval
from tests.core.cues import (
    a_planning_run,
    a_reflecting_run,
    a_waiting_run,
    errs,
    plans,
    reflection,
    replies,
    returns,
    signal,
)
from tests.core.going_on import made
from tests.core.script import Cue, Script

QUESTION = Ask(question="Which of the two?", choices=("the old one", "the new one"), would_change="what is fetched")


def asks_a_person(question: Ask = QUESTION, **reply: Any) -> Cue:
    """The model asks instead of acting."""
    return lambda script: _comes_next(script, question, reply)


def waits(seconds: float | None = 600.0, *, until: datetime | None = None, **reply: Any) -> Cue:
    """The model waits instead of acting."""
    return lambda script: _comes_next(script, Wait(why="the job runs", seconds=seconds, until=until), reply)


def _comes_next(script: Script, chosen: Ask | Wait, reply: dict[str, Any]) -> Event:
    """By itself, or with the reflection that is asked for."""
    reflecting = script.state.asking is not None and script.state.asking.phase == "reflect"
    along = replies(reflection("continue"), plan=chosen, **reply)
    return made(along if reflecting else replies(chosen, **reply), script)


def approves(**details: Any) -> Cue:
    """A person allows what waits for approval, by its hash."""
    return _rules("approve", details)


def rejects(**details: Any) -> Cue:
    """A person refuses what waits for approval, by its hash."""
    return _rules("reject", details)


def _rules(kind: Any, details: dict[str, Any]) -> Cue:
    def cue(script: Script) -> Event:
        waiting = script.state.waiting
        name = waiting.subject_hash if isinstance(waiting, ForApproval) else "0" * 32
        return made(signal(kind, **({"arguments_hash": name} | details)), script)

    return cue


def answer(message: str | None = "the new one", **details: Any) -> Cue:
    return signal("answer", message=message, **details)


# Runs that have come as far as their name says


def a_run_with_strangers(**details: Any) -> Script:
    """What strangers wrote was brought by the first step."""
    return a_waiting_run("browse", **details) >> returns()


def a_run_for_approval(**details: Any) -> Script:
    """A write is planned after strangers had their say: a person has to allow it."""
    return a_run_with_strangers(**details) >> replies(reflection("continue")) >> plans("post")


def a_run_for_answer(**details: Any) -> Script:
    """The model has asked a question in the place of its first action."""
    return a_planning_run(**details) >> asks_a_person()


def a_run_for_time(**details: Any) -> Script:
    """The model waits for ten minutes, after the first step."""
    return a_reflecting_run(**details) >> waits()


def a_run_in_doubt(name: str = "ledger", **details: Any) -> Script:
    """A write was sent, and nobody knows whether it was carried out."""
    return a_waiting_run(name, **details) >> errs("in_doubt")
