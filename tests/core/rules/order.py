"""Rules of order: entries, statuses and keys."""

from itertools import pairwise

from agent_service.core.effects import Publish
from agent_service.core.events import (
    SignalReceived,
)
from agent_service.core.waiting import Status
from tests.core.rules.reading import Story, after, entries, is_entry, reopened

RANK = {Status.QUEUED: 0, Status.RUNNING: 1, Status.PAUSED: 1}


def every_entry_counts_one_version(story: Story) -> None:
    assert [after(moment).version for moment in entries(story)] == list(range(1, len(entries(story)) + 1))


def an_ignored_event_changes_nothing(story: Story) -> None:
    for moment in story:
        assert is_entry(moment) or (moment.transition.state is moment.before and not moment.effects)


def a_status_never_goes_back_unless_an_answer_reopens_the_run(story: Story) -> None:
    ranks = [RANK.get(after(moment).status, 2) for moment in story]
    for (before, now), moment in zip(pairwise(ranks), story[1:], strict=True):
        assert before <= now or reopened(moment)


def no_key_is_used_twice(story: Story) -> None:
    keys = [e.key for moment in story for e in moment.effects if isinstance(e, Publish) and not e.rebuildable]
    assert len(keys) == len(set(keys))


def no_progress_is_told_under_the_key_of_another(story: Story) -> None:
    keys = [e.key for moment in story for e in moment.effects if isinstance(e, Publish) and e.rebuildable]
    assert len(keys) == len(set(keys))


def a_signal_is_heard_once(story: Story) -> None:
    heard = [m.event.signal.signal_id for m in entries(story) if isinstance(m.event, SignalReceived)]
    assert len(heard) == len(set(heard))
