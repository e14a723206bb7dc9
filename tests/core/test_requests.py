"""What may be asked of a tool, and what a request carries."""

from datetime import timedelta

import pytest

from agent_service.core.announcing import outstanding
from schemas.catalog import ToolCommand, ToolOffer
from tests.core.cues import (
    TOOLS,
    a_planning_run,
    a_waiting_run,
    due,
    frames,
    plans,
    queued,
    reflects,
    returns,
    signal,
    started,
    tool,
)
from tests.core.people_cues import answer
from tests.core.script import NOON, Cue, Script, asks, requests


def payload_of(run: Script) -> object:
    return run.sent("agentic.tool_request")["tool_payload"]


# What is pending is known before the request leaves


# What is said again

LATER = "2026-11-21T20:00:00Z"


@pytest.mark.parametrize(
    ("on_budget", "moves_the_deadline"),
    [("pause", signal("raise_budget", deadline_at=LATER)), ("escalate", answer("go on", deadline_at=LATER))],
)
def test_a_request_is_the_same_to_the_byte_when_it_is_said_again_after_the_deadline_moved(
    on_budget: str, moves_the_deadline: Cue
) -> None:
    run = a_waiting_run(deadline_at=NOON + timedelta(seconds=100), on_budget=on_budget)
    request = outstanding(run.state)
    run >> due >> moves_the_deadline
    assert outstanding(run.state) == request


# Reserved correlation keys


@pytest.mark.attack(48)
@pytest.mark.parametrize("key", ["RUN_ID", "Step", "tOOL", "ATTEMPT", "Wake_Id", "\u017ftep", "\u017fTEP"])
def test_no_twin_in_case_of_a_reserved_key_reaches_the_tool(key: str) -> None:
    """JSON readers that match keys without regard to case (Go's does) would take it for ours."""
    run = a_planning_run() >> plans("fetch", **{key: "forged", "url": "https://example.org"})
    assert payload_of(run) == {"url": "https://example.org"}


def test_a_key_that_only_contains_a_reserved_one_is_the_tool_s_own() -> None:
    run = a_planning_run() >> plans("fetch", steps=3, toolbox="x", my_run_id="y")
    assert payload_of(run) == {"steps": 3, "toolbox": "x", "my_run_id": "y"}


def test_a_reserved_key_inside_of_an_argument_is_content() -> None:
    run = a_planning_run() >> plans("fetch", filter={"step": 4})
    assert payload_of(run) == {"filter": {"step": 4}}


# The allowlist, frozen at the start


def test_an_artifact_that_no_result_of_the_run_named_is_given_to_no_tool() -> None:
    schema = {"type": "object", "properties": {"page": {"type": "string", "format": "artifact"}}}
    reader = ToolOffer(
        name="reader", route="reader", commands=(ToolCommand(name="handle", tier="read", input_schema=schema),)
    )
    run = queued() >> started((*TOOLS, reader)) >> frames() >> plans("fetch")
    run >> returns(output={"artifacts": [{"path": "artifacts/page.md"}]}) >> reflects("continue")
    run >> plans("reader", page="artifacts/planted.md") << asks("plan")
    assert run.told() == ("page: the run has no artifact 'artifacts/planted.md'; the newest are: artifacts/page.md",)
    run >> plans("reader", page="artifacts/page.md") << requests("reader", step=2)


# An agent never calls itself


@pytest.mark.attack(46)
@pytest.mark.parametrize("route", ["agentic-loop", "agentic-wake", "ductile-gateway"])
def test_a_tool_that_leads_back_to_the_agent_is_refused(route: str) -> None:
    run = queued() >> started([tool("helper", route=route)]) >> frames()
    run >> plans("helper") << asks("plan")
    assert "would start an agent from an agent" in run.told()[0]


# Where a request goes
