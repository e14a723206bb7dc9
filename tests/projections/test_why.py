"""Why a run stands where it stands: one verdict for each place, from what was found."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agent_service.run.ports import Dismissal
from agent_service.telling.answers.letters import DeadLetter
from agent_service.telling.answers.why import Holder, Seen, Whereabouts, WhyView, why_view
from schemas import subjects
from schemas.status import WaitingCall
from tests.core.cues import (
    FETCH,
    RUN_ID,
    a_finished_run,
    a_framing_run,
    a_paused_run,
    a_retrying_run,
    a_waiting_run,
    due,
    frames,
    plans,
    queued,
    started,
    unavailable,
)
from tests.core.script import NOON, Script

NOW = NOON + timedelta(minutes=2)
ALL_IS_WELL = Seen(now=NOW, present=frozenset({"hands"}))
LETTER = DeadLetter(
    id=7,
    buried=NOON,
    headers={"Dead-Letter-Subject": subjects.TOOL_RESULT, "Dead-Letter-Reason": "status: Field required"},
    size=2,
)
WORD = WaitingCall(run_id=RUN_ID, step=1, tool="fetch", attempt=1, since=NOON, why="Ductile does not answer")


def waiting() -> Script:
    """For a tool of the executor `hands`."""
    return queued() >> started((FETCH.model_copy(update={"executor": "hands"}),)) >> frames() >> plans()


def place(**holder: Any) -> Whereabouts:
    known: dict[str, Any] = {
        "consumer": "tools",
        "stands": "in_hand",
        "before": 0,
        "in_hand": 1,
        "redelivered": 0,
        "fetches": 0,
    }
    return Whereabouts(stream="AGENTIC_REQUESTS", seq=3, at=NOON, holders=(Holder(**(known | holder)),))


def why(script: Script, seen: Seen = ALL_IS_WELL, **found: Any) -> WhyView:
    return why_view(script.state, replace(seen, **found))


def facts(view: WhyView) -> dict[str, str]:
    return {fact.what: fact.text for fact in view.facts}


@pytest.mark.parametrize(
    ("found", "verdict", "command"),
    [
        ({"request": place()}, "step 1 (fetch handle), attempt 1 is being carried out; it is given up at", None),
        ({"request": place(stands="ahead", before=4)}, "waits on the bus until somebody takes it", "gateway serve"),
        ({"request": place(stands="done")}, "was taken and no result came; it is given up at", None),
        (
            {"request": Whereabouts(stream="S", seq=1, at=NOON)},
            "no consumer takes requests of route jina-reader",
            "serve",
        ),
        ({}, "is not on the bus: the agent says it again", "agentic doctor"),
        ({"request": place(), "present": frozenset()}, "hands does not answer", "ductile-gateway serve"),
        ({"request": place(), "word": WORD}, "and waits: Ductile does not answer", "agentic doctor"),
        ({"request": place(), "result": place()}, "is on the bus, and the agent has not taken it up", "agentic doctor"),
        ({"request": place(), "letters": (LETTER,)}, "refused: status: Field required", "agentic dlq retry 7"),
        ({"looked": False, "trouble": "no NATS"}, "what lies on the bus could not be looked at", "agentic doctor"),
    ],
)
def test_of_a_tool_that_is_waited_for_it_is_said_who_has_it(
    found: dict[str, Any], verdict: str, command: str | None
) -> None:
    view = why(waiting(), **found)
    assert verdict in view.verdict
    assert (view.remedy is None) if command is None else (view.remedy and command in view.remedy.command)


@pytest.mark.parametrize(
    ("script", "kind", "what", "verdict"),
    [
        (a_framing_run(), "model", "the reply to model call 1 (frame)", "the model is thinking"),
        (
            a_framing_run() >> unavailable("try_again", retry_after_s=5.0),
            "model_retry",
            "2026-11-21 12:00:05Z, when model call 1 (frame) is made again",
            "the model was not to be had",
        ),
        (a_retrying_run(), "tool_retry", "attempt 2 is sent", "is sent at 2026-11-21"),
        (a_waiting_run(), "tool", "the result of step 1 (fetch handle), attempt 1", "is not on the bus"),
        (a_paused_run(), "model", "a person: 529", "it waits for a person (overloaded): 529"),
    ],
)
def test_what_is_waited_for_is_said_in_words(script: Script, kind: str, what: str, verdict: str) -> None:
    view = why(script)
    assert view.waiting_for is not None
    assert (view.waiting_for.kind, what in view.waiting_for.what) == (kind, True)
    assert verdict in view.verdict


def test_of_a_run_that_stopped_it_is_said_why_and_what_to_do() -> None:
    escalated = why(
        a_waiting_run("post") >> due, dismissal=Dismissal(run_id=RUN_ID, version=5, by="token ops", at=NOON)
    )
    assert escalated.verdict.startswith("it has ended: escalated (in_doubt): step 1: post failed")
    assert escalated.waiting_for is None
    assert escalated.remedy is not None
    assert facts(escalated)["dismissed"] == "by token ops at 2026-11-21 12:00:00Z"
    done = why(a_finished_run())
    assert (done.verdict.startswith("it has ended: done"), done.remedy) == (True, None)


@pytest.mark.parametrize(
    ("holder", "said"),
    [
        ({}, "consumer tools has delivered it, with 1 in hand"),
        ({"in_hand": 3, "redelivered": 2}, "with 3 in hand, 2 of them delivered more than once"),
        ({"stands": "ahead", "before": 4}, "has not delivered it: 4 are before it, nobody fetches from it now"),
        ({"stands": "ahead", "fetches": 1}, "0 are before it, 1 fetches wait for messages"),
        ({"stands": "done"}, "consumer tools has dealt with it"),
    ],
)
def test_a_request_on_the_bus_is_told_with_who_holds_it(holder: dict[str, Any], said: str) -> None:
    told = facts(why(waiting(), request=place(**holder)))["request"]
    assert told.startswith("message 3 of AGENTIC_REQUESTS, stored 2026-11-21 12:00:00Z; ")
    assert said in told
