"""Rules of people: nothing is done that waits for them, and nothing goes past what they said."""

from collections.abc import Iterator

from agent_service.core.events import ModelReplied, SignalReceived, ToolReturned
from agent_service.core.people.approving import hash_of
from agent_service.core.tools.acting import digest
from agent_service.core.waiting import Approval, Question
from tests.core.rules.reading import Sent, Story, after, entries, finals, is_entry, offered, reopened, requests_of, sent
from tests.core.script import Moment

OF_BUDGETS = "budget_"


def begun(story: Story) -> Iterator[Sent]:
    return (request for request in sent(story) if request.attempt == 1)


def is_risky(story: Story, request: Sent) -> bool:
    """Whether it changes something, and nobody says that this stays in the house or can be done twice."""
    (command,) = (c for c in offered(story)[request.tool].commands if c.name == request.command)
    return command.tier == "write" and not command.idempotent


def name(request: Sent) -> str:
    return digest([request.tool, request.command, request.payload])


def rulings(story: Story, kind: str) -> Iterator[tuple[int, str]]:
    """Where people ruled, and on what; `kind` is approve or reject."""
    for place, moment in enumerate(story):
        asked = moment.before.ask if moment.before else None
        ruled = is_entry(moment) and isinstance(moment.event, SignalReceived) and moment.event.signal.kind == kind
        if ruled and isinstance(asked, Approval):
            yield place, hash_of(asked.proposal)


def no_risky_write_follows_what_strangers_wrote_without_a_person_who_allows_it(story: Story) -> None:
    allowed = list(rulings(story, "approve"))
    for request in begun(story):
        met = any(_brought_what_strangers_wrote(moment) for moment in entries(story[: request.place + 1]))
        if met and is_risky(story, request):
            fits = [(place, what) for place, what in allowed if place <= request.place and what == name(request)]
            assert fits
            allowed.remove(fits[0])


def _brought_what_strangers_wrote(moment: Moment) -> bool:
    live = moment.before is not None and not moment.before.final
    return live and isinstance(moment.event, ToolReturned) and moment.event.result.tool == "browse"


def no_task_writes_past_what_a_person_said_meanwhile(story: Story) -> None:
    said = besides = told = 0
    for moment in entries(story):
        if isinstance(moment.event, ModelReplied):
            told = said if moment.event.heard is None else moment.event.heard
        if besides > told and not (isinstance(moment.event, SignalReceived) and moment.event.signal.kind == "approve"):
            assert not [r for r in requests_of(moment) if r.task and r.attempt == 1 and is_risky(story, r)]
        said += _said(moment)
        besides = said if _said(moment) and not _decides(moment) else besides


def _decides(moment: Moment) -> bool:
    """Whether words came with a ruling, or with the answer that reopens a run."""
    reopens = moment.before is not None and moment.before.final
    return isinstance(moment.event, SignalReceived) and (reopens or moment.event.signal.kind in ("approve", "reject"))


def what_was_refused_is_not_asked_for_again_until_somebody_says_more(story: Story) -> None:
    for place, refused in rulings(story, "reject"):
        for moment in story[place + 1 :]:
            if _said(moment):
                break
            assert refused not in [waits.get("arguments_hash") for waits in moment.published("agent.waiting")]


def _said(moment: Moment) -> bool:
    return is_entry(moment) and isinstance(moment.event, SignalReceived) and bool(moment.event.signal.message)


def a_write_of_unknown_outcome_is_followed_by_none_of_its_tool_before_it_was_cleared(story: Story) -> None:
    in_doubt: set[str] = set()
    for moment in entries(story):
        for request in requests_of(moment):
            assert request.tool not in in_doubt or not is_risky(story, request)
        record = after(moment).completed[-1] if after(moment).completed else None
        if record and reopened(moment) and "is not known" in record.summary:
            in_doubt.add(record.tool)
        if isinstance(moment.event, SignalReceived) and (moment.event.signal.outcome or "look") != "look":
            in_doubt.clear()


def nothing_goes_past_what_a_person_said_meanwhile(story: Story) -> None:
    said = 0
    for moment in entries(story):
        event = moment.event
        if isinstance(event, ModelReplied) and event.heard is not None and event.heard < said:
            assert all(not is_risky(story, request) for request in requests_of(moment))
            assert not moment.published("agent.waiting") or after(moment).ending_class.startswith(OF_BUDGETS)
            assert not finals(moment) or after(moment).ending_class.startswith(OF_BUDGETS)
        said += _said(moment)


def no_more_questions_are_asked_than_granted(story: Story) -> None:
    asked = [
        w
        for moment in story
        for w in moment.published("agent.waiting")
        if w["kind"] == "question" and not isinstance(moment.before and moment.before.ask, Question)
    ]
    assert len(asked) <= after(story[0]).brief.limits.max_questions
