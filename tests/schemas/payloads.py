"""Every valid payload, as hypothesis strategies by event."""

import string
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from schemas import events, subjects

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
GOALS = TEXTS.filter(str.strip)
IDS = st.text(string.ascii_letters + string.digits + "._:-", min_size=1, max_size=128)
NAMES = st.from_regex(subjects.NAME, fullmatch=True)
COUNTS = st.integers(1, 2**53 - 1)
NUMBERS = st.integers(0, 2**53 - 1)
COSTS = st.floats(0, 1e9, exclude_min=True)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-11, minutes=-30))])
INSTANTS = st.datetimes(
    min_value=datetime(2, 1, 1),  # noqa: DTZ001  # hypothesis wants bounds without a zone
    max_value=datetime(9998, 1, 1),  # noqa: DTZ001  # hypothesis wants bounds without a zone
    timezones=ZONES,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _many(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=3).map(tuple)


CONSTRAINTS = st.builds(
    events.Constraints,
    max_loops=_maybe(COUNTS),
    max_steps=_maybe(COUNTS),
    deadline_at=_maybe(INSTANTS),
    max_tokens=_maybe(COUNTS),
    max_cost_usd=_maybe(COSTS),
    max_reframes=_maybe(NUMBERS),
)
USAGE = st.builds(events.Usage, tokens=NUMBERS, cost_usd=_maybe(COSTS))
ENDING = {
    "run_id": IDS,
    "goal": TEXTS,
    "reason": TEXTS,
    "ending_class": TEXTS,
    "step": NUMBERS,
    "usage": _maybe(USAGE),
}

PAYLOADS: dict[str, st.SearchStrategy[Any]] = {
    subjects.START: st.builds(
        events.AgenticStart,
        goal=GOALS,
        context=OBJECTS,
        constraints=CONSTRAINTS,
        callback=_maybe(TEXTS),
        run_id=_maybe(IDS),
        wake_id=_maybe(IDS),
    ),
    subjects.TOOL_REQUEST: st.builds(
        events.ToolRequest,
        run_id=IDS,
        step=COUNTS,
        tool=NAMES,
        tool_command=NAMES,
        tool_payload=OBJECTS,
        requested_at=INSTANTS,
        attempt=COUNTS,
        deadline_at=_maybe(INSTANTS),
    ),
    subjects.TOOL_RESULT: st.builds(
        events.ToolResult,
        run_id=IDS,
        step=COUNTS,
        tool=NAMES,
        status=st.sampled_from(["ok", "error", "continuation"]),
        result=_maybe(OBJECTS.map(lambda extra: events.ToolOutput.model_validate(extra | {"excerpt": "…"}))),
        error=_maybe(
            st.builds(
                events.ToolError,
                error_class=TEXTS,
                message=TEXTS,
                retryable=st.booleans(),
                job_id=_maybe(TEXTS),
                attempts=_maybe(COUNTS),
                exit_code=_maybe(st.integers(-64, 255)),
                stderr=_maybe(TEXTS),
                last_error=_maybe(TEXTS),
            )
        ),
        completed_at=INSTANTS,
        attempt=COUNTS,
    ),
    subjects.CANCEL: st.builds(events.Cancel, run_id=IDS, reason=_maybe(TEXTS)),
    subjects.SIGNAL: st.builds(
        events.Signal,
        run_id=IDS,
        signal_id=IDS,
        kind=st.sampled_from(["message", "answer", "resume", "raise_budget", "approve", "reject"]),
        step=_maybe(COUNTS),
        arguments_hash=_maybe(st.from_regex(r"[0-9a-f]{32}", fullmatch=True)),
        outcome=_maybe(st.sampled_from(["ran", "did_not_run", "look"])),
        message=_maybe(TEXTS),
        constraints=_maybe(CONSTRAINTS),
    ),
    subjects.WAKE_ACCEPTED: st.builds(events.WakeAccepted, run_id=IDS, wake_id=IDS, accepted_at=INSTANTS),
    subjects.PROGRESS: st.builds(
        events.Progress,
        run_id=IDS,
        seq=COUNTS,
        phase=st.sampled_from(["accepted", "frame", "plan", "act", "reflect", "end"]),
        step=NUMBERS,
        status=TEXTS,
        summary=TEXTS,
        definition_of_done=st.builds(events.Tally, done=NUMBERS, total=NUMBERS),
        budget=st.builds(
            events.BudgetUse,
            steps=NUMBERS,
            max_steps=NUMBERS,
            reframes=NUMBERS,
            max_reframes=NUMBERS,
            tokens=NUMBERS,
            max_tokens=_maybe(NUMBERS),
            cost_usd=_maybe(COSTS),
            max_cost_usd=_maybe(COSTS),
            deadline_at=INSTANTS,
        ),
    ),
    subjects.COMPLETED: st.builds(
        events.Completed,
        run_id=IDS,
        goal=TEXTS,
        outcome=TEXTS,
        steps_taken=NUMBERS,
        artifacts=_many(TEXTS),
        definition_of_done=_many(
            st.builds(events.DoneItem, id=TEXTS, text=TEXTS, done=st.booleans(), evidence=_many(TEXTS))
        ),
        usage=_maybe(USAGE),
        started_at=_maybe(INSTANTS),
        completed_at=_maybe(INSTANTS),
        trace_url=_maybe(TEXTS),
    ),
    subjects.ESCALATED: st.builds(events.Escalated, **ENDING, resumable=st.booleans()),
    subjects.FAILED: st.builds(events.Failed, **ENDING),
    subjects.CANCELLED: st.builds(events.Cancelled, **ENDING),
    subjects.WAITING: st.builds(
        events.Waiting,
        run_id=IDS,
        kind=st.sampled_from(["approval", "question", "budget", "in_doubt"]),
        reason=TEXTS,
        step=_maybe(COUNTS),
        tool=_maybe(NAMES),
        command=_maybe(NAMES),
        arguments=_maybe(OBJECTS),
        arguments_hash=_maybe(TEXTS),
        question=_maybe(TEXTS),
        choices=_many(TEXTS),
        tried=_maybe(TEXTS),
        would_change=_maybe(TEXTS),
        expires_at=_maybe(INSTANTS),
    ),
    subjects.REOPENED: st.builds(events.Reopened, run_id=IDS, by=TEXTS, answer_to=TEXTS, message=_maybe(TEXTS)),
    subjects.REJECTED: st.builds(
        events.Rejected,
        subject=TEXTS,
        stream_seq=COUNTS,
        msg_id=_maybe(TEXTS),
        dedupe_key=_maybe(TEXTS),
        run_id=_maybe(IDS),
        step=_maybe(COUNTS),
        reason=TEXTS,
        repeat_as=_maybe(TEXTS),
    ),
}
