"""Questions to people: the model asks instead of acting, and rests until somebody answers."""

from datetime import datetime

from agent_service.core import endings, limits
from agent_service.core.facts import PersonAsked
from agent_service.core.model.asking import ask
from agent_service.core.phases import Ask, Phase
from agent_service.core.state import RunState, replace, with_facts
from agent_service.core.waiting import Deciding, NeedsPerson, Question

MOST_CHOICES = 12


def flaws_of(state: RunState, question: Ask) -> tuple[str, ...]:
    most, flaws = state.brief.limits.max_questions, []
    if state.questions >= most:
        flaws.append(f"all {most} questions are asked: decide without an answer, or escalate")
    if not question.question.strip():
        flaws.append("the question is blank")
    if len(question.choices) > MOST_CHOICES or any(not choice.strip() for choice in question.choices):
        flaws.append(f"a question has at most {MOST_CHOICES} choices, none of them blank")
    return tuple(flaws)


def ask_person(state: RunState, question: Ask, *, at: datetime) -> RunState:
    """Then the model is asked what follows, or to frame if it has not."""
    waiting = NeedsPerson(
        ask=Question(ask=question, phase=Phase.REFLECT if state.framing else Phase.FRAME),
        since=at,
        expires_at=limits.expires_at(state.brief.limits, at, state.brief.limits.answer_s),
        entry=state.version,
    )
    resting = replace(
        state,
        waiting=waiting,
        questions=state.questions + 1,
        summary=f"asks: {question.question}",
        updated_at=at,
    )
    return with_facts(resting, PersonAsked(ask=waiting.ask, expires_at=waiting.expires_at))


def answered(state: RunState, question: Question, *, at: datetime, by_message: bool) -> RunState:
    """The answer is among the notes already; `by_message`: with what a person said in its place."""
    why = "a person spoke while your question waited, which may answer it or not"
    why = why if by_message else "your question was answered"
    return ask(replace(state, waiting=Deciding()), question.phase, at=at, feedback=(why,))


def on_expiry(state: RunState, question: Question, *, at: datetime) -> RunState:
    return endings.escalate(state, "unanswered", f"nobody answered in time: {question.ask.question}", at=at)
