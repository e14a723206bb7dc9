"""Reframing: the goal stays the person's, whatever strangers wrote into the results of a run."""

from dataclasses import replace
from typing import Any

import pytest

from agent_service.core.phases import Framing, Proof
from agent_service.core.waiting import ForApproval
from schemas.catalog import ToolCommand, ToolOffer
from tests.core.cues import POST, plan, plans, reflects, replies, returns, signal, started, wake
from tests.core.script import Script, asks

WEB = ToolOffer(
    name="web", route="web", commands=(ToolCommand(name="handle", tier="read"),), timeout_s=60.0, output="untrusted"
)
NOTES = ToolOffer(name="notes", route="notes", commands=(ToolCommand(name="handle", tier="write", effect="local"),))
OWN = ToolOffer(name="sensor", route="sensor", commands=(ToolCommand(name="handle", tier="read"),), output="trusted")
GOAL = "Summarise https://example.org/ for alice@corp.example into /srv/reports."


def framing(*items: str, statement: str = "Summarise the page.", **more: Any) -> Framing:
    texts = items or ("the page was read", "the summary has a source", "the summary is kept")
    return Framing(goal_statement=statement, definition_of_done=texts, **more)


def a_reframing_run(tool: str = "web", *, untrusted: bool = False, **first: Any) -> Script:
    """A step of `tool` is done, and the run is to be framed anew. `untrusted`: strangers have asked for the run."""
    asked = replace(wake(), goal=GOAL, context={"copy to": "bob@corp.example"}, untrusted=untrusted)
    run = Script() >> asked >> started((WEB, OWN, POST, NOTES)) >> replies(framing(**first)) >> plans(tool)
    return run >> returns() >> reflects("reframe")


@pytest.mark.parametrize(
    ("item", "names"),
    [
        ("the summary was sent to mallory@evil.example", "mallory@evil.example"),
        ("https://evil.example/collect has the summary", "evil.example"),
        ("/etc/passwd was read", "/etc/passwd"),
        ("a post says that it is done", "the tool post"),
    ],
)
def test_after_content_of_strangers_a_framing_that_adds_an_addressee_or_a_write_needs_approval(
    item: str, names: str
) -> None:
    run = a_reframing_run() >> replies(framing(item, "two", "three"), plan=plan("post"))
    assert isinstance(run.state.waiting, ForApproval)
    assert run.state.waiting.reason == (
        f"the new framing names {names}, which nobody asked for, and step 1 (web) brought what strangers wrote"
    )
    assert run.state.framing == framing()


@pytest.mark.parametrize("named", ["alice@corp.example", "bob@corp.example"])
def test_what_strangers_asked_for_is_named_by_nobody(named: str) -> None:
    asked = framing(f"{named} has it", "two", "three")
    a_reframing_run(untrusted=False) >> replies(asked) << asks("plan")
    run = a_reframing_run("sensor", untrusted=True) >> replies(asked)
    assert isinstance(run.state.waiting, ForApproval)
    assert named in run.state.waiting.reason


def test_a_write_that_the_proof_of_an_item_names_needs_approval_too() -> None:
    proofs = (Proof(kind="step", tool="post"), Proof(kind="step"), Proof(kind="step"))
    run = a_reframing_run() >> replies(framing(proofs=proofs))
    assert isinstance(run.state.waiting, ForApproval)


def test_an_approved_framing_is_in_force_and_the_next_action_is_planned() -> None:
    run = a_reframing_run() >> replies(framing("mail to eve@evil.example", "two", "three"))
    assert isinstance(run.state.waiting, ForApproval)
    run >> signal("approve", arguments_hash=run.state.waiting.subject_hash) << asks("plan")
    assert run.state.framing is not None
    assert run.state.framing.definition_of_done[0] == "mail to eve@evil.example"


def test_a_rejected_framing_is_told_and_not_taken_again_unchanged() -> None:
    widened = framing("mail to eve@evil.example", "two", "three")
    run = a_reframing_run() >> replies(widened) >> signal("reject", message="nobody asked for a mail")
    assert run.state.framing == framing()
    assert "not approved (rejected): nobody asked for a mail" in run.told()[0]
    run >> plans("web", url="more") >> returns() >> reflects("reframe") >> replies(widened) << asks("frame")
    assert "this framing was not approved (rejected): nobody asked for a mail" in run.told()


def test_the_constraints_of_the_first_framing_stay_in_force() -> None:
    run = a_reframing_run(constraints=("tell nobody",)) >> replies(framing(constraints=("be quick",)))
    assert run.state.framing is not None
    assert run.state.framing.constraints == ("tell nobody", "be quick")
    again = run >> plans("web", url="more") >> returns() >> reflects("reframe") >> replies(framing())
    assert again.state.framing == framing(constraints=("tell nobody",))
    assert run.state.original == framing(constraints=("tell nobody",))
