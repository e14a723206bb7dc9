"""trace.jsonl: one line per act and per decision, in a chain that a reader can check with four lines of code."""

import hashlib
import json
from typing import Any

from agent_service.telling.pages.trace import broken_line
from agent_service.telling.pages.trail import trail
from tests.core.cues import (
    a_reflecting_run,
    a_retrying_run,
    a_waiting_run,
    cancel,
    due,
    errs,
    goes_on,
    plan,
    reflection,
    reflects,
    replies,
    returns,
    signal,
    unavailable,
)
from tests.core.script import Script
from tests.projections.journals import MODEL, entries_of, worked_example

FIELDS = [
    "phase", "step", "attempt", "timestamp", "tool", "args", "result_status", "result_summary", "error", "retryable",
    "usage", "cost_usd", "entry", "hash",
]  # fmt: skip


def text(script: Script) -> str:
    return trail(entries_of(script))["trace.jsonl"]


def lines(script: Script) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text(script).splitlines()]


def test_every_line_has_exactly_the_fields_in_their_order() -> None:
    assert [list(line) for line in lines(worked_example())] == [FIELDS] * 7


def test_the_worked_example_gives_a_line_per_act_and_decision() -> None:
    assert [(line["phase"], line["step"], line["entry"]) for line in lines(worked_example())] == [
        ("frame", 0, 3),
        ("plan", 1, 4),
        ("act", 1, 5),
        ("reflect", 1, 6),
        ("plan", 2, 6),
        ("act", 2, 7),
        ("reflect", 2, 8),
    ]


def test_an_act_carries_its_arguments_and_its_evidence() -> None:
    act = lines(worked_example())[2]
    assert act["tool"] == "fetch"
    assert act["args"] == {"url": "http://mattjoyce.ai"}
    assert act["timestamp"] == "2026-11-21T12:00:05Z"
    assert (act["result_status"], act["result_summary"], act["error"], act["retryable"]) == (
        "ok",
        "Matt Joyce",
        None,
        None,
    )
    assert (act["usage"], act["cost_usd"]) == (None, None)


def test_a_decision_names_its_model_and_what_it_cost() -> None:
    frame = lines(worked_example())[0]
    assert frame["usage"] == {
        "model": MODEL,
        "input_tokens": 800,
        "output_tokens": 120,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
    }
    assert frame["cost_usd"] == 0.0042


def test_the_costs_of_all_lines_add_up_to_the_cost_of_the_run() -> None:
    script = worked_example()
    assert sum(line["cost_usd"] or 0 for line in lines(script)) == script.state.spent.cost_usd
    assert sum(line["usage"]["input_tokens"] for line in lines(script) if line["usage"]) == 3200


def test_an_unknown_price_is_null() -> None:
    assert lines(a_reflecting_run() >> replies(reflection("escalate"), cost=None))[-1]["cost_usd"] is None


def test_each_hash_is_over_the_hash_before_it_and_the_canonical_line() -> None:
    previous = "0" * 64
    for line in lines(worked_example()):
        claimed = line.pop("hash")
        canonical = json.dumps(line, sort_keys=True, separators=(",", ":"))
        assert claimed == hashlib.sha256((previous + canonical).encode()).hexdigest()
        previous = claimed


def test_a_longer_journal_only_appends_lines() -> None:
    script = a_reflecting_run()
    shorter = text(script)
    assert text(script >> goes_on()).startswith(shorter)


def test_a_failed_attempt_and_its_retry_are_two_lines() -> None:
    first, second = [line for line in lines(a_retrying_run() >> due >> returns()) if line["phase"] == "act"]
    assert (first["attempt"], first["result_status"], first["retryable"]) == (1, "error", True)
    assert first["error"] == {"class": "upstream", "message": "it broke"}
    assert (second["step"], second["attempt"], second["result_status"]) == (1, 2, "ok")


def test_an_answer_that_never_came_is_an_act_that_failed() -> None:
    act = lines(a_waiting_run("post") >> due)[-1]
    assert (act["phase"], act["tool"], act["result_status"], act["retryable"]) == ("act", "post", "error", False)
    assert act["error"]["class"] == "in_doubt"


def test_a_deadline_that_ends_the_run_is_no_act() -> None:
    script = a_waiting_run().wait(hours=2) >> due
    assert script.state.ending_class == "budget_time"
    assert [line["phase"] for line in lines(script)] == ["frame", "plan"]


def test_late_and_uncalled_for_results_are_lines_of_their_own() -> None:
    assert lines(a_waiting_run() >> cancel() >> returns(step=1))[-1]["result_status"] == "late"
    uncalled = lines(a_waiting_run() >> returns(step=7))[-1]
    assert (uncalled["result_status"], uncalled["step"], uncalled["args"]) == ("refused", 7, None)


def test_a_wish_for_more_that_cannot_be_read_is_an_error() -> None:
    line = lines(a_waiting_run() >> returns("continuation"))[-1]
    assert (line["result_status"], line["error"]["class"]) == ("error", "bad_continuation")


def test_a_refused_decision_says_why_and_whether_it_is_asked_for_again() -> None:
    line = lines(a_reflecting_run() >> reflects("done"))[-1]
    assert (line["phase"], line["result_status"], line["retryable"]) == ("reflect", "refused", True)
    assert line["error"]["class"] == "done_refused"


def test_a_refused_plan_does_not_spoil_the_reflection_it_came_with() -> None:
    reflected, planned = lines(a_reflecting_run() >> replies(reflection("continue"), plan=plan("curl")))[-2:]
    assert (reflected["result_status"], reflected["error"]) == ("ok", None)
    assert (planned["result_status"], planned["tool"]) == ("refused", "curl")
    assert "curl" in planned["error"]["message"]


def test_a_plan_over_the_budget_is_refused_for_good() -> None:
    planned = lines(a_reflecting_run(max_steps=1) >> replies(reflection("continue"), plan=plan()))[-1]
    assert planned["error"]["class"] == "budget_steps"
    assert planned["retryable"] is False


def test_a_reframe_is_a_line_with_its_reason() -> None:
    line = lines(a_reflecting_run() >> reflects("reframe"))[-1]
    assert (line["phase"], line["result_status"]) == ("reflect", "ok")
    assert line["result_summary"] == "reframe: looked at the result"


def test_a_call_without_an_answer_is_a_line_without_a_cost() -> None:
    line = lines(a_reflecting_run() >> unavailable("try_again"))[-1]
    assert (line["phase"], line["result_status"], line["retryable"]) == ("reflect", "error", True)
    assert line["error"] == {"class": "overloaded", "message": "529"}
    assert line["cost_usd"] is None


def test_what_is_neither_act_nor_decision_has_no_line() -> None:
    script = a_waiting_run()
    assert lines(script >> signal("message", message="hello") >> cancel()) == lines(a_waiting_run())


def test_the_same_error_twice_is_two_acts_of_one_step() -> None:
    script = a_retrying_run() >> due >> errs("upstream", retryable=True)
    assert [(line["step"], line["attempt"]) for line in lines(script) if line["phase"] == "act"] == [(1, 1), (1, 2)]


def test_the_chain_is_whole_as_written_and_broken_at_the_first_line_that_was_touched() -> None:
    written = text(worked_example()).splitlines()
    assert broken_line("\n".join(written)) is None
    assert broken_line("\n".join([*written[:2], *written[3:]])) == 3
    assert broken_line("\n".join([*written[:4], written[4].replace('"step":2', '"step":3'), *written[5:]])) == 5
    assert broken_line("\n".join([*written[:6], "not JSON"])) == 7
    assert broken_line("[" * 100_000) == 1
