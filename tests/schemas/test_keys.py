"""Dedupe keys and ids, letter by letter: other programs compute them too."""

import pytest

from schemas import keys

RUN = "run_01JZ8Q5T7W9X2Y4Z6A8B0C1D2E"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (keys.start("ext-7"), "agentic:start:ext-7"),
        (keys.request(RUN, 3, 1), f"agentic:run:{RUN}:step:3:request"),
        (keys.result(RUN, 3, 1), f"agentic:run:{RUN}:step:3:result"),
        (keys.cancel(RUN), f"agentic:run:{RUN}:cancel"),
        (keys.signal(RUN, "sig-1"), f"agentic:run:{RUN}:signal:sig-1"),
        (keys.accepted(RUN), f"agentic:run:{RUN}:accepted"),
        (keys.progress(RUN, 12), f"agentic:run:{RUN}:progress:12"),
        (keys.progress(RUN, 12, "frame"), f"agentic:run:{RUN}:progress:12:frame"),
        (keys.completed(RUN), f"agentic:run:{RUN}:completed"),
        (keys.escalated(RUN, 31), f"agentic:run:{RUN}:escalated:31"),
        (keys.failed(RUN), f"agentic:run:{RUN}:failed"),
        (keys.cancelled(RUN), f"agentic:run:{RUN}:cancelled"),
        (keys.rejected("AGENTIC", 41), "agentic:rejected:AGENTIC:41"),
    ],
)
def test_a_dedupe_key_has_its_form(key: str, expected: str) -> None:
    assert key == expected


@pytest.mark.parametrize("attempt", [2, 3, 11])
def test_a_retry_has_a_key_of_its_own(attempt: int) -> None:
    assert keys.request(RUN, 3, attempt) == f"agentic:run:{RUN}:step:3:request:attempt:{attempt}"
    assert keys.result(RUN, 3, attempt) == f"agentic:run:{RUN}:step:3:result:attempt:{attempt}"


def test_a_sub_request_is_named_by_its_task_and_round() -> None:
    assert keys.request(RUN, 3, 1, "task-1", 2) == f"agentic:run:{RUN}:step:3:task:task-1:2:request"
    assert keys.result(RUN, 3, 2, "again", 4) == f"agentic:run:{RUN}:step:3:task:again:4:result:attempt:2"
    assert keys.call(RUN, 3, "fetch", 1, "task-1", 2) == f"{RUN}:3:task-1:2:fetch:1"


def test_the_key_of_a_result_tells_what_it_answers() -> None:
    assert keys.answers(keys.result(RUN, 3, 2, "task-1.again", 2), RUN, 3) == ("task-1.again", 2)
    assert keys.answers(keys.late_result(RUN, 3, 1), RUN, 3) == (None, None)
    for other in (keys.result(RUN, 4, 1), keys.request(RUN, 3, 1), "mine", ""):
        assert keys.answers(other, RUN, 3) is None


def test_no_two_messages_of_a_run_share_a_key() -> None:
    steps = [
        key(RUN, step, attempt) for key in (keys.request, keys.result) for step in (1, 2, 11) for attempt in (1, 2)
    ]
    numbered = [key(RUN, seq) for key in (keys.progress, keys.escalated) for seq in (1, 2, 11)]
    once = [key(RUN) for key in (keys.cancel, keys.accepted, keys.completed, keys.failed, keys.cancelled)]
    signals = [keys.signal(RUN, signal_id) for signal_id in ("a", "b")]
    every = [*steps, *numbered, *once, *signals, keys.start(RUN)]
    assert len(set(every)) == len(every)
