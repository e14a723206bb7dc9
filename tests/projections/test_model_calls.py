"""How a real model's calls are told: what was set aside, fused openings, digests, refusals, caches and provenance."""

import json
from typing import Any

import pytest

from agent_service.core.phases import Digest, Refusal
from agent_service.run.moments import Moment, retell
from agent_service.telling.answers.entries import entry_views
from agent_service.telling.answers.runs import run_view
from agent_service.telling.pages.trail import trail
from agent_service.telling.rulings import Ruling, rulings
from tests.core.cues import (
    a_compacting_run,
    a_framing_run,
    a_reflecting_run,
    cancel,
    digests,
    opens,
    plan,
    replies,
    reserves,
)
from tests.core.script import Script
from tests.projections.journals import (
    MODEL,
    entries_of,
    priced_example,
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


# Verification


@pytest.mark.parametrize("decision", [Digest(memory=("*a*", "# b")), Refusal(category="*a*", explanation="# b")])
def test_texts_of_a_digest_and_a_refusal_can_not_forge_a_page(decision: Any) -> None:
    run = a_compacting_run() >> replies(decision)
    assert "\n# b" not in diary(run)[-1]
