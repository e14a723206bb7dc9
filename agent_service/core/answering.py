"""Questions to people: the model asks instead of acting, and rests until somebody answers."""

from datetime import datetime, timedelta

from agent_service.core import endings, petition
from agent_service.core.asking import ask
from agent_service.core.effects import Transition
from agent_service.core.events import TimerFired
from agent_service.core.phases import Ask, Phase
from agent_service.core.replacing import replace
from agent_service.core.state import RunState
from agent_service.core.waiting import Deciding, ForAnswer


def ask_person(state: RunState, question: Ask, phase: Phase, *, at: datetime) -> Transition:
    """Rest until somebody answers `question`; `phase` is asked then."""
    limits = state.brief.limits
    expires_at = at + timedelta(seconds=limits.answer_s)
    waiting = ForAnswer(
        ask=question,
        phase=phase,
        since=at,
        expires_at=min(expires_at, limits.deadline_at) if limits.deadline_named else expires_at,
        entry=state.version,
    )
    resting = replace(
        state,
        waiting=waiting,
        questions=state.questions + 1,
        summary=f"asks: {question.question}",
        updated_at=at,
    )
    return Transition(state=resting, effects=petition.said(resting))


def answered(state: RunState, *, at: datetime) -> Transition:
    """Go on with the answer, which is among the notes already."""
    assert isinstance(state.waiting, ForAnswer)
    return ask(replace(state, waiting=Deciding()), state.waiting.phase, at=at)


def on_expiry(state: RunState, event: TimerFired) -> Transition:
    """Nobody answered in time: the run ends, and can be reopened by an answer that comes later."""
    assert isinstance(state.waiting, ForAnswer)
    question = state.waiting.ask.question
    return endings.escalate(state, "unanswered", f"nobody answered in time: {question}", at=event.at)
