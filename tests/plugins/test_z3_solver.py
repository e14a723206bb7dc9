"""The plugin that solves constraints: what it answers, what it asks for, and what it relaxes. z3 itself solves."""

from typing import Any

from schemas.continuation import Retrieve, parse_continuation
from tests.plugins.asking import SHIPPED, ask, refused

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


def found(*lines: str) -> dict[str, Any]:
    """Result of a retrieval."""
    text = "1 of 1 sections\n\n[1] purchasing.md, lines 15 to 20: Budget\n" + "\n".join(lines)
    told = {"task": "task-1", "round": 1, "action": "retrieve", "query": "any", "tool": "knowledge", "status": "ok"}
    return told | {"result": {"summary": text}}


def test_a_contradiction_is_told_without_what_has_no_part_in_it_and_it_is_asked_what_may_be_relaxed() -> None:
    response = solved(TEAM)
    assert response["output"]["status"] == "unsat"
    assert [one["name"] for one in response["output"]["core"]] == ["budget", "price", "team"]
    assert response["result"].startswith("unsat: of 4 constraints these 3 cannot all hold:\n- budget: cost <= 10000\n")
    continuation = parse_continuation(response["continuation"])
    assert isinstance(continuation, Retrieve)
    for part in ("relaxed", "budget: cost <= 10000", "team: seats >= 12"):
        assert part in continuation.query
    assert "places" not in continuation.query
    assert "cannot all hold" in (continuation.reason or "")


OFFERS = (
    MORE_MONEY,
    "  * `relax: cost<=10000 -> cost<=11000`",
    "> Relax: 10000 >= cost → 11000 >= cost",
    "relax: (<= cost 10000) -> (<= cost 11000)",
    "relax: budget -> cost <= 11000",
)
NO_OFFERS = (
    "relax: cost <= 9999 -> cost <= 11000",
    "relax: money -> cost <= 11000",
    "relax: cost <= 10000",
    "we relax: cost <= 10000 -> cost <= 11000",
    "relax: cost <= 10000 -> cost <= euros",
    "relax: cost <= 10000 -> __import__('os').abort()",
    "relax: cost <= 10000 -> )(",
    "relax: cost <= 10000 -> cost <= 10000",
)


def test_an_offer_names_a_constraint_by_its_words_or_by_its_name_and_nothing_else_changes_anything() -> None:
    for line in OFFERS:
        assert solved(TEAM | {"evidence": [found(line)]})["output"]["status"] == "sat", line
    for line in NO_OFFERS:
        response = solved(TEAM | {"evidence": [found(line)]})
        assert response["output"]["status"] == "unsat", line
        assert "budget: cost <= 10000" in response["continuation"]["query"]


def test_a_fixed_constraint_is_neither_asked_about_nor_relaxed() -> None:
    response = solved(TEAM | {"fixed": ["budget"], "evidence": [found(MORE_MONEY, "relax: budget -> true")]})
    assert response["output"]["relaxed"] == []
    assert "budget" not in response["continuation"]["query"]
    every = [one["name"] for one in response["output"]["core"]]
    assert solved(TEAM | {"fixed": every})["result"].endswith("All of these are fixed.")


def test_a_problem_that_takes_too_long_is_given_up_in_time() -> None:
    cubes = {"variables": dict.fromkeys("xyz", "int"), "constraints": ["x*x*x + y*y*y = z*z*z", "x*y*z > 0"]}
    for response in (solved(cubes, timeout_seconds=0.5), solved(cubes, seconds=2.5)):
        assert "z3 found no answer within 0." in refused(response, "timeout")


def test_a_problem_that_takes_too_much_memory_is_given_up() -> None:
    products = "\n".join(f"(assert (= (bvmul b c) (bvmul c #x{n:064x})))" for n in range(1, 40))
    script = f"(declare-const b (_ BitVec 256))(declare-const c (_ BitVec 256))\n{products}"
    response = solved({"smt2": script}, memory_mb=20, timeout_seconds=15)
    assert (response["status"], response["error_class"]) == ("error", "tool_error"), response
    assert "20 MB" in response["error"]
