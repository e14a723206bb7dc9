"""The plugin that solves constraints: what it answers, what it asks for, and what it relaxes. z3 itself solves."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schemas.continuation import Retrieve, of_object
from tests.plugins.asking import SHIPPED, a_request, ask

Z3 = SHIPPED / "z3-solver"
TEAM: dict[str, Any] = {
    "variables": {"seats": "int", "cost": "int", "places": "int"},
    "constraints": [
        {"name": "budget", "expr": "cost <= 10000"},
        {"name": "price", "expr": "cost = seats * 900"},
        {"name": "team", "expr": "seats >= 12"},
        "places >= 0",
    ],
}
MORE_MONEY = "relax: cost <= 10000 -> cost <= 11000"


def solved(payload: dict[str, Any], *, seconds: float = 20, **config: Any) -> dict[str, Any]:
    return ask(Z3, payload, command="solve", config=config, seconds=seconds)


def found(*lines: str, query: str = "anything", task: str = "task-1", **result: Any) -> dict[str, Any]:
    """What a retrieval brought."""
    text = "1 of 1 sections\n\n[1] purchasing.md, lines 15 to 20: Budget\n" + "\n".join(lines)
    told = {"task": task, "round": 1, "action": "retrieve", "query": query, "tool": "knowledge", "status": "ok"}
    return told | {"result": {"summary": text} | result}


def test_constraints_that_can_all_hold_are_answered_with_values() -> None:
    response = solved({"variables": {"a": "int", "b": "int"}, "constraints": ["a + b = 10", "a - b = 4"]})
    assert response == {
        "status": "ok",
        "result": "sat: all 2 constraints hold\nvalues: a = 7, b = 3",
        "output": {"status": "sat", "constraints": 2, "model": {"a": 7, "b": 3}, "relaxed": []},
    }


def test_a_contradiction_is_told_without_what_has_no_part_in_it() -> None:
    response = solved(TEAM)
    assert response["output"]["status"] == "unsat"
    assert [one["name"] for one in response["output"]["core"]] == ["budget", "price", "team"]
    assert response["result"].startswith("unsat: of 4 constraints these 3 cannot all hold:\n- budget: cost <= 10000\n")


def test_of_a_contradiction_it_asks_what_may_be_relaxed() -> None:
    continuation = of_object(solved(TEAM)["continuation"])
    assert isinstance(continuation, Retrieve)
    for part in ("relaxed", "budget: cost <= 10000", "team: seats >= 12"):
        assert part in continuation.query
    assert "places" not in continuation.query
    assert "cannot all hold" in (continuation.reason or "")


def test_what_the_evidence_offers_is_relaxed_and_said_with_its_source() -> None:
    response = solved(TEAM | {"evidence": [found("The head may.", f"- {MORE_MONEY}")], "continuations_left": 2})
    assert "continuation" not in response
    assert response["output"]["model"] == {"cost": 10800, "seats": 12, "places": 0}
    (change,) = response["output"]["relaxed"]
    assert change == {
        "name": "budget",
        "from": "cost <= 10000",
        "to": "cost <= 11000",
        "by": "purchasing.md, lines 15 to 20: Budget; knowledge, task-1",
    }
    assert "budget: cost <= 10000 became cost <= 11000 (by purchasing.md" in response["result"]


@pytest.mark.parametrize(
    "line",
    [
        "relax: cost <= 10000 -> cost <= 11000",
        "  * `relax: cost<=10000 -> cost<=11000`",
        "> Relax: 10000 >= cost → 11000 >= cost",
        "relax: (<= cost 10000) -> (<= cost 11000)",
        "relax: budget -> cost <= 11000",
    ],
)
def test_an_offer_names_a_constraint_by_its_words_or_by_its_name(line: str) -> None:
    assert solved(TEAM | {"evidence": [found(line)]})["output"]["status"] == "sat"


@pytest.mark.parametrize(
    "line",
    [
        "relax: cost <= 9999 -> cost <= 11000",
        "relax: money -> cost <= 11000",
        "relax: cost <= 10000",
        "we relax: cost <= 10000 -> cost <= 11000",
        "relax: cost <= 10000 -> cost <= euros",
        "relax: cost <= 10000 -> __import__('os').abort()",
        "relax: cost <= 10000 -> )(",
        "relax: cost <= 10000 -> cost <= 10000",
    ],
)
def test_what_is_no_offer_for_this_problem_changes_nothing(line: str) -> None:
    response = solved(TEAM | {"evidence": [found(line)]})
    assert response["output"]["status"] == "unsat"
    assert "budget: cost <= 10000" in response["continuation"]["query"]


def test_only_what_is_part_of_the_contradiction_is_relaxed() -> None:
    offers = found("relax: places >= 0 -> places >= -5", MORE_MONEY, "relax: team -> seats >= 1")
    response = solved(TEAM | {"evidence": [offers]})
    assert [one["name"] for one in response["output"]["relaxed"]] == ["budget"]


def test_one_contradiction_after_the_other_is_relaxed() -> None:
    steps = found("relax: cost <= 10000 -> cost <= 10500", "relax: cost <= 10500 -> cost <= 10800")
    response = solved(TEAM | {"evidence": [steps]})
    assert [one["to"] for one in response["output"]["relaxed"]] == ["cost <= 10500", "cost <= 10800"]
    assert response["result"].startswith("sat: all 4 constraints hold, with 1 of them relaxed:\n")


def test_where_relaxing_was_not_enough_it_asks_about_what_is_left() -> None:
    response = solved(TEAM | {"evidence": [found("relax: cost <= 10000 -> cost <= 10500")]})
    assert "budget: cost <= 10500" in response["continuation"]["query"]
    assert "relaxed, which is not enough:\n- budget: cost <= 10000 became cost <= 10500" in response["result"]


def test_what_was_asked_before_is_not_asked_again() -> None:
    query = solved(TEAM)["continuation"]["query"]
    response = solved(TEAM | {"evidence": [found("Nothing of the kind.", query=query)]})
    assert "continuation" not in response
    assert response["output"]["status"] == "unsat"
    assert response["result"].endswith("Nothing that was found says how one of these may be relaxed.")


def test_with_no_continuation_left_nothing_is_asked() -> None:
    response = solved(TEAM | {"continuations_left": 0})
    assert "continuation" not in response
    assert response["result"].endswith("What may be relaxed could not be asked any more.")


def test_who_wants_nothing_relaxed_is_told_of_the_contradiction_alone() -> None:
    response = solved(TEAM | {"relax": False})
    assert (response["output"]["status"], "continuation" in response) == ("unsat", False)


def test_a_fixed_constraint_is_neither_asked_about_nor_relaxed() -> None:
    response = solved(TEAM | {"fixed": ["budget"], "evidence": [found(MORE_MONEY, "relax: budget -> true")]})
    assert response["output"]["relaxed"] == []
    assert "budget" not in response["continuation"]["query"]
    every = [one["name"] for one in response["output"]["core"]]
    assert solved(TEAM | {"fixed": every})["result"].endswith("All of these are fixed.")


@pytest.mark.parametrize(
    "evidence",
    [
        [],
        [7, "relax: budget -> true", None, {}],
        [{"task": "t", "status": "error", "error": {"message": MORE_MONEY}}],
        [{"task": "t", "status": "error", "result": {"summary": MORE_MONEY}}],
        [{"status": "ok", "result": None}],
    ],
)
def test_evidence_that_brought_nothing_offers_nothing(evidence: list[Any]) -> None:
    assert solved(TEAM | {"evidence": evidence})["output"]["status"] == "unsat"


def test_an_offer_is_found_wherever_a_retrieval_tool_puts_its_text() -> None:
    for result in ({"excerpt": MORE_MONEY}, {"output": {"sections": [{"text": f"Budget\n{MORE_MONEY}\n"}]}}):
        assert solved(TEAM | {"evidence": [found(**result)]})["output"]["status"] == "sat"


def test_a_problem_that_takes_too_long_is_given_up_in_time() -> None:
    cubes = {"variables": dict.fromkeys("xyz", "int"), "constraints": ["x*x*x + y*y*y = z*z*z", "x*y*z > 0"]}
    for response in (solved(cubes, timeout_seconds=0.5), solved(cubes, seconds=2.5)):
        assert (response["status"], response["error_class"], response["retry"]) == ("error", "timeout", False)
        assert "z3 found no answer within 0." in response["error"]


def test_a_problem_that_takes_too_much_memory_is_given_up() -> None:
    products = "\n".join(f"(assert (= (bvmul b c) (bvmul c #x{n:064x})))" for n in range(1, 40))
    script = f"(declare-const b (_ BitVec 256))(declare-const c (_ BitVec 256))\n{products}"
    response = solved({"smt2": script}, memory_mb=20, timeout_seconds=15)
    assert (response["status"], response["error_class"]) == ("error", "tool_error"), response
    assert "20 MB" in response["error"]


@pytest.mark.parametrize("config", [{"timeout_seconds": 0}, {"timeout_seconds": "10"}, {"memory_mb": True}])
def test_a_configuration_that_cannot_be_is_named(config: dict[str, Any]) -> None:
    response = solved(TEAM, **config)
    assert response["error_class"] == "configuration"
    assert next(iter(config)) in response["error"]


@pytest.mark.parametrize("command", ["solve", "health"])
def test_without_its_package_it_says_what_to_install(command: str, tmp_path: Path) -> None:
    (tmp_path / "z3.py").write_text("raise ImportError")
    done = subprocess.run(
        [Z3 / "run.py"],
        input=a_request(TEAM, command=command, config={}),
        capture_output=True,
        env={"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "PYTHONPATH": str(tmp_path)},
        check=True,
    )
    assert b'"error_class": "configuration"' in done.stdout
    assert b"pip install z3-solver" in done.stdout
