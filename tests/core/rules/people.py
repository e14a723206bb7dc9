"""Rules of people: nothing happens that waits for them, or without their messages."""

from collections.abc import Iterator

from agent_service.core.acting import digest
from agent_service.core.events import ModelReplied, SignalReceived, ToolReturned
from agent_service.core.planning import subject_hash
from agent_service.core.waiting import Approval, Question
from tests.core.rules.reading import Sent, Story, after, entries, finals, is_entry, offered, reopened, requests_of, sent
from tests.core.script import ChangeRecord

OF_BUDGETS = "budget_"


def begun(story: Story) -> Iterator[Sent]:
    return (request for request in sent(story) if request.attempt == 1)


def is_risky(story: Story, request: Sent) -> bool:
    """True for a write that is neither local nor idempotent."""
    (command,) = (c for c in offered(story)[request.tool].commands if c.name == request.command)
    return command.tier == "write" and not command.idempotent


def name(request: Sent) -> str:
    return digest([request.tool, request.command, request.payload])


def rulings(story: Story, kind: str) -> Iterator[tuple[int, str]]:
    """Rulings with their place in the story; `kind` is approve or reject."""
    for place, change in enumerate(story):
        asked = change.before.ask if change.before else None
        ruled = is_entry(change) and isinstance(change.event, SignalReceived) and change.event.signal.kind == kind
        if ruled and isinstance(asked, Approval):
            yield place, subject_hash(asked.proposal)


def no_risky_write_follows_what_strangers_wrote_without_a_person_who_allows_it(story: Story) -> None:
    allowed = list(rulings(story, "approve"))
    for request in begun(story):
        met = any(_brought_what_strangers_wrote(change) for change in entries(story[: request.place + 1]))
        if met and is_risky(story, request):
            fits = [(place, what) for place, what in allowed if place <= request.place and what == name(request)]
            assert fits
            allowed.remove(fits[0])


def _brought_what_strangers_wrote(change: ChangeRecord) -> bool:
    live = change.before is not None and not change.before.final
    return live and isinstance(change.event, ToolReturned) and change.event.result.tool == "browse"


def no_task_writes_past_what_a_person_said_meanwhile(story: Story) -> None:
    said = told = 0
    for change in entries(story):
        if isinstance(change.event, ModelReplied):
            told = said if change.event.words is None else change.event.words
        if said > told and not (isinstance(change.event, SignalReceived) and change.event.signal.kind == "approve"):
            assert not [r for r in requests_of(change) if r.task and r.attempt == 1 and is_risky(story, r)]
        said += _said(change)


def what_was_refused_is_not_asked_for_again_until_somebody_says_more(story: Story) -> None:
    for place, refused in rulings(story, "reject"):
        for change in story[place + 1 :]:
            if _said(change):
                break
            assert refused not in [waits.get("arguments_hash") for waits in change.published("agent.waiting")]


def _said(change: ChangeRecord) -> bool:
    return is_entry(change) and isinstance(change.event, SignalReceived) and bool(change.event.signal.message)


def a_write_of_unknown_outcome_is_followed_by_none_of_its_tool_before_it_was_cleared(story: Story) -> None:
    in_doubt: set[str] = set()
    for change in entries(story):
        for request in requests_of(change):
            assert request.tool not in in_doubt or not is_risky(story, request)
        record = after(change).completed[-1] if after(change).completed else None
        if record and reopened(change) and "is not known" in record.summary:
            in_doubt.add(record.tool)
        if isinstance(change.event, SignalReceived) and (change.event.signal.outcome or "look") != "look":
            in_doubt.clear()


def nothing_goes_past_what_a_person_said_meanwhile(story: Story) -> None:
    said = 0
    for change in entries(story):
        event = change.event
        if isinstance(event, ModelReplied) and event.words is not None and event.words < said:
            assert all(not is_risky(story, request) for request in requests_of(change))
            assert not change.published("agent.waiting") or after(change).ending_class.startswith(OF_BUDGETS)
            assert not finals(change) or after(change).ending_class.startswith(OF_BUDGETS)
        said += _said(change)


def no_more_questions_are_asked_than_granted(story: Story) -> None:
    asked = [
        w
        for change in story
        for w in change.published("agent.waiting")
        if w["kind"] == "question" and not isinstance(change.before and change.before.ask, Question)
    ]
    assert len(asked) <= after(story[0]).brief.limits.max_questions
