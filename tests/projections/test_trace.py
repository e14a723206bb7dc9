"""trace.jsonl: one line per act and per decision, in a chain that a reader can check with four lines of code."""

import hashlib
import json
from typing import Any

from agent_service.telling.pages.trail import broken_line, trail
from tests.core.script import Script
from tests.projections.journals import MODEL, entries_of, worked_example


def text(script: Script) -> str:
    return trail(entries_of(script))["trace.jsonl"]


def lines(script: Script) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text(script).splitlines()]


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


def test_each_hash_is_over_the_hash_before_it_and_the_canonical_line() -> None:
    previous = "0" * 64
    for line in lines(worked_example()):
        claimed = line.pop("hash")
        canonical = json.dumps(line, sort_keys=True, separators=(",", ":"))
        assert claimed == hashlib.sha256((previous + canonical).encode()).hexdigest()
        previous = claimed


def test_the_chain_is_whole_as_written_and_broken_at_the_first_line_that_was_touched() -> None:
    written = text(worked_example()).splitlines()
    assert broken_line("\n".join(written)) is None
    assert broken_line("\n".join([*written[:2], *written[3:]])) == 3
    assert broken_line("\n".join([*written[:4], written[4].replace('"step":2', '"step":3'), *written[5:]])) == 5
    assert broken_line("\n".join([*written[:6], "not JSON"])) == 7
    assert broken_line("[" * 100_000) == 1
