"""Proof: a claim counts when its evidence is of the kind that framing fixed, and its quote stands in it."""

from typing import Any

import pytest

from agent_service.core.events import Seen
from agent_service.core.evidence.proof import places_in
from agent_service.core.phases import Framing, Met, Proof, Reflection, Unmet, Verdict
from tests.core.cues import a_framing_run, plans, replies, returns, signal
from tests.core.script import Cue, Script, asks, completes

ARTIFACT = "artifacts/report.md"
PROOFS = (Proof(kind="value", tool="fetch"), Proof(kind="artifact"), Proof(kind="person"))


def framed(*proofs: Proof) -> Framing:
    items = ("the price is known", "the report is kept", "somebody agreed")
    return Framing(goal_statement="Report the price.", definition_of_done=items, proofs=proofs or PROOFS)


def a_proving_run(*proofs: Proof, **details: Any) -> Script:
    """A first step of fetch brought a result and an artifact, and a person said something."""
    run = a_framing_run(**details) >> replies(framed(*proofs)) >> plans()
    (
        run
        >> returns(output={"summary": "the price is 12", "artifact_path": ARTIFACT})
        >> signal("message", message="I agree.")
    )
    return run


def claims(*met: Met, verdict: str = "continue", unmet: tuple[Unmet, ...] = (), seen: Any = True, **reply: Any) -> Cue:
    """A reflection that claims; every quote is found in every place that is named, unless told otherwise."""
    reflection = Reflection(verdict=Verdict(verdict), summary="looked at the result", met=met, unmet=unmet)

    def cue(script: Script) -> Any:
        places = {place for claim in met for place in places_in(claim.evidence, script.state.artifacts)}
        found = [Seen(evidence=p, quote=c.quote, found=bool(seen)) for c in met for p in sorted(places)]
        event = replies(reflection, seen=tuple(found), **reply)
        return event(script) if callable(event) else event

    return cue


PRICE = Met(item="d1", evidence="step:1", quote="the price is 12")
KEPT = Met(item="d2", evidence=ARTIFACT, quote="The price is 12.")
AGREED = Met(item="d3", evidence="person", quote="I agree")


def test_done_is_granted_when_every_item_is_proved_and_says_by_what() -> None:
    run = a_proving_run()
    run >> claims(PRICE, KEPT, AGREED, verdict="done") << completes()
    items = run.sent("agent.completed")["definition_of_done"]
    assert [(item["evidence"], item["quotes"]) for item in items] == [
        (["step:1"], ["the price is 12"]),
        ([ARTIFACT], ["The price is 12."]),
        (["person"], ["I agree"]),
    ]


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (
            Met(item="d2", evidence="step:1", quote="kept"),
            "item d2 is shown by an artifact of the run, and step:1 (fetch) is none",
        ),
        (
            Met(item="d3", evidence="step:1", quote="yes"),
            "item d3 is shown by what a person said, and step:1 (fetch) is none",
        ),
        (
            Met(item="d1", evidence="person", quote="12"),
            "item d1 is shown by a value in a result of fetch, and person is none",
        ),
        (
            Met(item="d1", evidence=ARTIFACT, quote="12"),
            f"item d1 is shown by a value in a result of fetch, and {ARTIFACT} is none",
        ),
        (Met(item="d1", evidence="step:1"), "item d1 needs a quote: some words of step:1 that show it"),
        (Met(item="d1", evidence="step:7", quote="12"), "evidence 'step:7' for item d1 does not exist"),
        (Met(item="d1", evidence="I am sure", quote="12"), "evidence 'I am sure' for item d1 does not exist"),
        (Met(item="d9", evidence="step:1", quote="12"), "there is no item d9"),
    ],
)
def test_a_claim_whose_evidence_is_not_of_the_fixed_kind_is_refused(claim: Met, why: str) -> None:
    run = a_proving_run() >> claims(claim)
    assert run.told() == (why,)
    assert not any(item.done for item in run.state.done_items)


def test_a_claim_whose_quote_is_not_found_is_refused() -> None:
    run = a_proving_run() >> claims(PRICE, seen=False)
    assert run.told() == ("the quote for item d1 does not stand in the result of step:1: quote it word for word",)


def test_where_a_write_is_quoted_its_arguments_may_be() -> None:
    run = a_framing_run() >> replies(framed(*[Proof(kind="step", tool="save")] * 3))
    run >> plans("save", text="the price is 12") >> returns(output={"summary": "kept"})
    assert run.state.completed[-1].sent == {"text": "the price is 12"}
    run >> claims(Met(item="d1", evidence="step:1", quote="the price is 13"), seen=False)
    why = "does not stand in the result or the arguments of step:1: quote it word for word"
    assert run.told() == (f"the quote for item d1 {why}",)


def test_a_quote_of_one_letter_is_refused_with_what_to_quote_instead() -> None:
    run = a_proving_run() >> claims(Met(item="d1", evidence="step:1", quote="a"), seen=False)
    assert run.told() == ("the quote for item d1 is too short to show it: quote some words of step:1 around it",)


def test_a_quote_that_nobody_looked_up_shows_nothing() -> None:
    run = a_proving_run()
    run >> replies(Reflection(verdict=Verdict.DONE, summary="done", met=(PRICE, KEPT, AGREED))) << asks("reflect")


def test_a_step_of_another_tool_does_not_show_an_item() -> None:
    run = a_proving_run(*[Proof(kind="step", tool="post")] * 3)
    run >> claims(Met(item="d1", evidence="step:1", quote="12"))
    assert run.told() == ("item d1 is shown by a step of post that ended ok, and step:1 (fetch) is none",)


def test_a_step_that_brought_nothing_needs_no_quote() -> None:
    run = a_framing_run() >> replies(framed(*[Proof(kind="step")] * 3)) >> plans("save") >> returns(output={})
    run >> claims(*(Met(item=item, evidence="step:1") for item in ("d1", "d2", "d3")), verdict="done") << completes()
    assert [item["quotes"] for item in run.sent("agent.completed")["definition_of_done"]] == [[""]] * 3


def test_one_of_several_places_is_enough_and_only_that_one_is_noted() -> None:
    run = a_proving_run() >> claims(Met(item="d1", evidence="steps 1 and 2", quote="the price is 12"))
    assert run.state.done_items[0].evidence == ("step:1",)
    assert run.told() == ()


@pytest.mark.parametrize(
    ("evidence", "places"),
    [
        ("step 1", ("step:1",)),
        ("Step #1", ("step:1",)),
        ("step:1, step:2", ("step:1", "step:2")),
        ("steps 1, 2 and 3", ("step:1", "step:2", "step:3")),
        ("the result of step 3 (fetch).", ("step:3",)),
        ("report.md", (ARTIFACT,)),
        ("artifact `report.md`; step 2", (ARTIFACT, "step:2")),
        ("message_from_a_person", ("person",)),
        ("the person's answer", ("person",)),
        ("step:01", ("step:01",)),
        ("step 1 perhaps", ("step 1 perhaps",)),
    ],
)
def test_evidence_is_understood_in_its_natural_forms(evidence: str, places: tuple[str, ...]) -> None:
    assert places_in(evidence, (ARTIFACT,)) == places


def test_what_is_unmet_loses_its_tick_and_done_is_refused() -> None:
    run = a_proving_run() >> claims(PRICE, KEPT, AGREED) >> plans() >> returns()
    refuted = (Unmet(item="d1", reason="the newer page says 13"),)
    run >> claims(verdict="done", unmet=refuted) << asks("reflect")
    assert run.told() == ("`done` was refused", "item d1 is still open: the price is known")
    assert run.state.done_items[0].quotes == ()


# Framing


def test_a_proof_by_a_tool_that_is_not_on_offer_is_refused() -> None:
    run = a_framing_run()
    run >> replies(framed(Proof(kind="step", tool="curl"), *PROOFS[:2])) << asks("frame")
    assert run.told()[0].startswith("a proof names the tool 'curl', which is not on offer: fetch, ")


def test_a_value_that_could_stand_in_the_result_of_any_tool_is_refused_as_proof() -> None:
    run = a_framing_run() >> replies(framed(Proof(kind="value"), *PROOFS[1:])) << asks("frame")
    why = "item 1 of definition_of_done is shown by a `value`: name the tool in whose result it will stand"
    assert run.told() == (why,)


def test_a_framing_needs_a_proof_for_each_item_or_none() -> None:
    run = a_framing_run()
    run >> replies(framed(*PROOFS[:2])) << asks("frame")
    assert run.told() == ("definition_of_done needs a proof for each item",)


def test_items_of_a_new_framing_are_counted_on_so_that_no_old_proof_is_taken_for_theirs() -> None:
    run = a_proving_run() >> claims(PRICE, verdict="reframe") >> replies(framed())
    assert [item.id for item in run.state.done_items] == ["d4", "d5", "d6"]
    run >> plans() >> returns() >> claims(PRICE)
    assert run.told() == ("there is no item d1",)
