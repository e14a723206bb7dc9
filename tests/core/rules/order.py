"""Rules of order: entries, statuses and keys; and the legal words, as a regular expression."""

import re
from collections.abc import Iterator

from agent_service.core.effects import Publish
from agent_service.core.events import (
    CancelRequested,
    ModelReplied,
    RunStarted,
    SignalReceived,
    ToolReturned,
    WakeAccepted,
)
from agent_service.core.waiting import Status
from tests.core.rules.reading import Story, after, entries, finals, is_entry, requests_of, timed_out
from tests.core.script import Moment

RANK = {Status.QUEUED: 0, Status.RUNNING: 1, Status.PAUSED: 1}
LETTER = {Status.DONE: "D", Status.ESCALATED: "E", Status.FAILED: "F", Status.CANCELLED: "X"}

ATTEMPTS = r"q1\.*(?:f\.*q2\.*(?:f\.*q3\.*)?)?"
WORD = re.compile(rf"a\.*(?:s(?:\.|pr?|p{ATTEMPTS}[tf])*(?:p{ATTEMPTS}(?:f\.*)?)?)?(?:p?r?c?[DEFX]i*)?")
"""Accepted, started, decided by the model (p), reframed (r), requested (q, attempt), ok (t), failed (f), cancelled (c),
ended (DEFX), late (i), anything else (.). A story that has not ended is the beginning of a word."""


def every_entry_counts_one_version(story: Story) -> None:
    assert [after(moment).version for moment in entries(story)] == list(range(1, len(entries(story)) + 1))


def an_ignored_event_changes_nothing(story: Story) -> None:
    for moment in story:
        assert is_entry(moment) or (moment.transition.state is moment.before and not moment.effects)


def a_status_never_goes_back(story: Story) -> None:
    ranks = [RANK.get(after(moment).status, 2) for moment in story]
    assert ranks == sorted(ranks)


def no_key_is_used_twice(story: Story) -> None:
    keys = [e.key for moment in story for e in moment.effects if isinstance(e, Publish) and not e.rebuildable]
    assert len(keys) == len(set(keys))


def no_progress_is_told_under_the_key_of_another(story: Story) -> None:
    keys = [e.key for moment in story for e in moment.effects if isinstance(e, Publish) and e.rebuildable]
    assert len(keys) == len(set(keys))


def a_signal_is_heard_once(story: Story) -> None:
    heard = [m.event.signal.signal_id for m in entries(story) if isinstance(m.event, SignalReceived)]
    assert len(heard) == len(set(heard))


def the_story_is_a_legal_word(story: Story) -> None:
    word = "".join(letters(story))
    assert WORD.fullmatch(word), word


def letters(story: Story) -> Iterator[str]:
    for moment in entries(story):
        yield _happened(moment)
        yield from (f"q{request.attempt}" for request in requests_of(moment))
        if not (moment.before and moment.before.final):
            yield LETTER.get(after(moment).status, "")


def _happened(moment: Moment) -> str:
    match moment.event:
        case WakeAccepted():
            return "a"
        case RunStarted():
            return "s"
        case ModelReplied():
            return "pr" if moment.before and after(moment).reframes > moment.before.reframes else "p"
        case CancelRequested():
            return "c"
        case ToolReturned() if moment.before and moment.before.final:
            return "i"
        case ToolReturned(result=result) if after(moment).ending_class != "protocol_violation":
            return "t" if result.status == "ok" else "f"
        case _ if timed_out(moment):
            return "f"
        case _:
            return "" if finals(moment) or requests_of(moment) else "."
