"""How a real model's calls are told: what was set aside, fused openings, digests, refusals, caches and provenance."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from agent_service.core.events import CallReserved, Provenance
from agent_service.core.phases import Digest, Phase, Refusal, Unusable, Verdict
from agent_service.moments import Moment, retell
from agent_service.telling.entries import entry_views
from agent_service.telling.folder.verify import verify
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.pages.trace import broken_line
from agent_service.telling.pages.trail import trail
from agent_service.telling.rulings import Ruling, rulings
from agent_service.telling.views import run_view
from tests.core.cues import (
    RUN_ID,
    a_framing_run,
    a_planning_run,
    a_reflecting_run,
    cancel,
    framing,
    garbles,
    plan,
    reflection,
    replies,
    returns,
    started,
    unavailable,
)
from tests.core.model_cues import a_compacting_run, digests, opens, refuses, reserves
from tests.core.script import Script
from tests.projections.journals import (
    CACHED,
    CRITIQUE,
    FETCH,
    FRAMING,
    GOAL,
    MODEL,
    PAGE,
    asked_for,
    entries_of,
    priced_example,
    second_by_second,
    thinks,
)


def moments_of(script: Script) -> list[Moment]:
    return list(retell(entries_of(script)))


def ruled(script: Script) -> list[tuple[str, int, str, str | None]]:
    """The rulings of the newest moment: phase, step, status and class."""
    return [_short(ruling) for ruling in rulings(moments_of(script)[-1])]


def _short(ruling: Ruling) -> tuple[str, int, str, str | None]:
    return ruling.phase.value, ruling.step, ruling.status, ruling.error_class


def traced(script: Script) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trail(entries_of(script))["trace.jsonl"].splitlines()]


def diary(script: Script) -> list[str]:
    """The entries of decisions.md."""
    return trail(entries_of(script))["decisions.md"].split("\n## ")[1:]


def said(script: Script) -> list[str]:
    return [view.summary for view in entry_views(entries_of(script))]


# Reserves


def test_a_call_is_asked_for_once_though_it_is_set_aside_for_twice() -> None:
    moments = moments_of(priced_example())
    asked = [(moment.entry.seq, moment.asked.call) for moment in moments if moment.asked]
    assert asked == [(2, 1), (5, 2), (9, 3)]
    assert not any(moment.asked or moment.put_off for moment in moments if isinstance(moment.event, CallReserved))


def test_what_is_set_aside_is_said_with_its_model_and_its_bounds() -> None:
    assert said(priced_example())[2] == "set aside at most 9000 tokens (0.1000 USD) for call 1 to priced"
    unknown = a_framing_run() >> reserves(400, None)
    assert said(unknown)[-1] == "set aside at most 400 tokens (price not known) for call 1 to priced"


def test_what_is_set_aside_has_an_entry_in_the_diary_and_no_line_in_the_trace() -> None:
    entry = diary(priced_example())[2]
    assert entry.startswith("3. Set aside · 2026-11-21 12:00:03Z (1.0 s)\n\nAt most 9000 tokens (")
    assert 3 not in [line["entry"] for line in traced(priced_example())]


def test_the_diary_writes_currencies_and_models_as_they_are_written() -> None:
    assert "At most 9000 tokens (0.1000 USD) for call 1 to priced." in diary(priced_example())[2]


def test_a_limit_that_keeps_a_call_from_being_made_is_said_with_what_followed() -> None:
    run = a_framing_run(max_tokens=300) >> reserves(400)
    assert "the run ended: escalated (budget_tokens)" in said(run)[-1]
    paused = a_framing_run(max_tokens=300, on_budget="pause") >> reserves(400)
    assert "the run pauses (budget_tokens)" in said(paused)[-1]


def test_a_run_waits_for_its_model_whether_it_is_set_aside_for_or_not() -> None:
    status = trail(entries_of(a_framing_run() >> reserves()))["memory.md"]
    assert "**Running**, waiting for the model to frame (call 1)" in status


def test_lost_calls_are_shown_beside_what_was_spent() -> None:
    script = priced_example()
    usage = run_view(script.state).usage
    assert (usage.calls, usage.lost_calls, usage.lost_tokens, usage.lost_cost_usd) == (3, 1, 9000, 0.1)
    assert usage.cache_read_tokens == 8400
    assert "count as 9000 tokens" in trail(entries_of(script))["memory.md"]
    cancelled = a_reflecting_run() >> reserves(400, 0.04) >> cancel()
    assert run_view(cancelled.state).budget.lost_tokens == 400


# Fused openings


def test_an_opening_is_two_rulings_two_lines_and_one_entry() -> None:
    script = a_framing_run() >> opens(plan("save", text="x"))
    assert ruled(script) == [("frame", 0, "ok", None), ("plan", 1, "ok", None)]
    frame, planned = traced(script)
    assert (frame["phase"], frame["tool"], frame["cost_usd"]) == ("frame", None, 0.01)
    assert (planned["phase"], planned["tool"], planned["args"]) == ("plan", "save", {"text": "x"})
    assert (planned["cost_usd"], planned["usage"]["input_tokens"]) == (0.0, 0)
    assert diary(script)[-1].startswith("3. Frame and plan · ")
    assert said(script)[-1].startswith("framed: Write a critique of example.org.; planned: save handle")


@pytest.mark.parametrize(
    ("first", "status"), [(plan("curl"), "refused"), (Unusable(reason="two actions", raw="{"), "unusable")]
)
def test_a_plan_that_is_refused_does_not_spoil_the_framing_it_came_with(first: Any, status: str) -> None:
    script = a_framing_run() >> opens(first)
    assert ruled(script) == [("frame", 0, "ok", None), ("plan", 1, status, "invalid_decision")]
    assert traced(script)[-1]["retryable"] is True


def test_a_plan_that_came_with_a_flawed_framing_was_ignored() -> None:
    script = a_framing_run() >> opens(plan(), "too", "few")
    assert ruled(script) == [("frame", 0, "refused", "invalid_decision"), ("plan", 1, "ignored", None)]


def test_a_plan_over_the_budget_is_refused_and_its_framing_is_not() -> None:
    script = a_reflecting_run(max_steps=1) >> replies(reflection("reframe")) >> opens()
    assert ruled(script) == [("frame", 1, "ok", None), ("plan", 2, "refused", "budget_steps")]


@pytest.mark.parametrize(
    "script",
    [
        a_framing_run() >> replies(reflection("continue"), plan=plan()),
        a_reflecting_run() >> replies(framing(), plan=plan()),
    ],
    ids=["reflecting instead of framing", "framing instead of reflecting"],
)
def test_a_plan_that_came_with_a_decision_of_another_phase_was_ignored(script: Script) -> None:
    assert [status for _, _, status, _ in ruled(script)] == ["refused", "ignored"]


# Digests and refusals


def test_a_digest_is_a_line_of_its_own_phase_and_shown_in_the_diary() -> None:
    script = a_compacting_run() >> digests("page 1 has one heading", "# page 2")
    assert ruled(script) == [("compact", 8, "ok", None)]
    line = traced(script)[-1]
    assert (line["phase"], line["result_status"]) == ("compact", "ok")
    assert line["result_summary"] == "2 facts take the place of the older notes"
    entry = diary(script)[-1]
    assert entry.startswith("20. Compact · ")
    assert "- page 1 has one heading\n- \\# page 2" in entry
    assert said(script)[-1].startswith("compacted: 2 facts take the place of the older notes")
    assert said(script)[-1].endswith("asked the model to reflect (call 11)")


def test_facts_of_a_digest_are_the_facts_of_the_run_s_memory() -> None:
    script = a_compacting_run() >> digests("page 1 has one heading")
    assert "## Learned facts\n\n- page 1 has one heading\n" in trail(entries_of(script))["memory.md"]


def test_an_unusable_digest_is_told_and_asked_for_again_and_then_done_without() -> None:
    script = a_compacting_run(max_repairs=1) >> garbles()
    assert ruled(script) == [("compact", 8, "unusable", "invalid_decision")]
    script = script >> garbles()
    assert [status for _, _, status, _ in ruled(script)] == ["unusable"]
    assert script.state.asking is not None
    assert script.state.asking.phase is Phase.REFLECT


@pytest.mark.parametrize("so_far", [a_framing_run, a_planning_run, a_reflecting_run, a_compacting_run])
def test_a_refusal_of_the_model_is_a_refused_decision_with_its_category(so_far: Any) -> None:
    script = so_far() >> refuses("cyber", "it may *harm*")
    assert [(status, error_class) for _, _, status, error_class in ruled(script)] == [("refused", "model_refused")]
    line = traced(script)[-1]
    assert (line["result_status"], line["retryable"]) == ("refused", False)
    assert line["error"]["message"] == "the model refused to answer (cyber): it may *harm*"
    assert "**Refused to answer** (`cyber`). it may \\*harm\\*" in diary(script)[-1]
    assert "the run ended: escalated (model_refused)" in said(script)[-1]


def test_a_plan_phase_that_escalates_is_told_with_its_reason() -> None:
    script = a_planning_run() >> replies(reflection("escalate"))
    assert said(script)[-1].startswith("planned: escalate: looked at the result")
    assert "**Escalate:** looked at the result" in diary(script)[-1]


# Caches and provenance


def test_a_line_carries_what_came_from_the_cache_and_what_was_written_to_it() -> None:
    reflected, planned = [line for line in traced(priced_example()) if line["entry"] == 8]
    assert reflected["usage"] == {
        "model": MODEL,
        "input_tokens": 5000,
        "output_tokens": 120,
        "cache_read_tokens": 4200,
        "cache_write_tokens": 300,
    }
    assert (planned["usage"]["cache_read_tokens"], planned["usage"]["cache_write_tokens"]) == (0, 0)


def test_the_lines_add_up_to_what_the_run_spent() -> None:
    script, lines = priced_example(), traced(priced_example())
    counted = [line["usage"] for line in lines if line["usage"]]
    assert sum(usage["input_tokens"] + usage["output_tokens"] for usage in counted) == script.state.spent.tokens
    assert sum(usage["cache_read_tokens"] for usage in counted) == script.state.spent.cache_read_tokens
    assert sum(line["cost_usd"] or 0.0 for line in lines) == pytest.approx(script.state.spent.cost_usd)


def test_each_decision_carries_the_hashes_of_its_prompt_and_its_schema() -> None:
    decided = [line for line in traced(priced_example()) if line["phase"] != "act"]
    assert {(line["prompt_hash"], line["schema_hash"]) for line in decided} == {("aaaa", "bbbb")}
    acts = [line for line in traced(priced_example()) if line["phase"] == "act"]
    assert not any("prompt_hash" in line or "schema_hash" in line for line in acts)


def test_the_hashes_are_part_of_what_is_chained() -> None:
    text = trail(entries_of(priced_example()))["trace.jsonl"]
    assert broken_line(text) is None
    assert broken_line(text.replace('"prompt_hash":"aaaa"', '"prompt_hash":"cccc"', 1)) == 1


def test_a_missed_cache_is_told_with_the_provider_s_reason() -> None:
    missed = Provenance(prompt_hash="a", schema_hash="b", cache_miss="messages_changed *here*")
    script = second_by_second(asked_for(GOAL), started((FETCH,)), thinks(FRAMING, usage=CACHED, provenance=missed))
    entry = diary(script)[-1]
    assert "5000 tokens in (4200 from the cache), 120 out" in entry
    assert "The provider's prompt cache was missed: messages_changed \\*here\\*." in entry


def test_an_outage_between_the_halves_is_a_line_without_a_cost() -> None:
    line = traced(a_planning_run() >> reserves() >> unavailable("try_again"))[-1]
    assert (line["phase"], line["result_status"], line["cost_usd"]) == ("plan", "error", None)


# Verification


STORIES: dict[str, Callable[[], Script]] = {
    "a priced run": priced_example,
    "a digest": lambda: a_compacting_run() >> reserves() >> digests("a fact") >> reserves(),
    "a refusal": lambda: a_reflecting_run() >> reserves() >> refuses(),
    "a refused opening": lambda: a_framing_run() >> reserves() >> opens(plan("curl")) >> reserves(),
    "an opening": lambda: a_framing_run() >> opens() >> returns() >> reserves() >> cancel(),
}


@pytest.mark.parametrize("name", STORIES)
def test_what_was_written_of_such_a_run_is_verified(name: str, workspace: Workspace) -> None:
    entries = entries_of(STORIES[name]())
    files = {page: text.encode() for page, text in trail(entries).items()}
    artifacts = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE} if name == "a priced run" else {}
    assert workspace.write([(RUN_ID, files | artifacts)]) == {}
    assert verify(entries, workspace, RUN_ID) == []


@pytest.mark.parametrize("decision", [Digest(memory=("*a*", "# b")), Refusal(category="*a*", explanation="# b")])
def test_texts_of_a_digest_and_a_refusal_can_not_forge_a_page(decision: Any) -> None:
    run = a_compacting_run() >> replies(decision)
    assert "\n# b" not in diary(run)[-1]


def test_a_verdict_of_a_plan_phase_is_no_ruling_of_the_goal() -> None:
    script = a_planning_run() >> replies(reflection(Verdict.DONE))
    assert ruled(script) == [("plan", 1, "refused", "invalid_decision")]
