"""The plugin that solves constraints: how it reads them, what it answers, asks for and relaxes. z3 itself solves."""

from pathlib import Path
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


def read(**payload: Any) -> dict[str, Any]:
    return solved({"relax": False} | payload)


JSON_FORM = {"variables": {"a": "int"}, "constraints": [{"name": "low", "expr": "a >= 3"}, "a < 4"]}


FORMS: list[dict[str, Any]] = [
    JSON_FORM,
    {"smt2": "(declare-const a Int)(assert (! (>= a 3) :named low))(assert (< a 4))"},
    {"smt2": ";3\n(set-logic QF_LIA)\n(declare-fun a () Int)\n(assert (>= a 3))(assert (< a 4))(check-sat)(exit)"},
    {"smt2": "(define-fun less ((x Int)) Bool (< x 4))(declare-const a Int)(assert (and (>= a 3) (less a)))"},
    {"input": "int a\n# what it is about\nlow: a >= 3\n\na < 4"},
    {"input": "  (declare-const a Int)\n(assert (= a 3))"},
]


def test_a_problem_is_read_in_each_form() -> None:
    assert [read(**payload)["output"]["model"] for payload in FORMS] == [{"a": 3}] * len(FORMS)


WRITTEN = {
    "x = 2 + 3 * 4": 14,
    "2 * (x + 1) = 8": 3,
    "x == 7 // 2": 3,
    "x = 7 % 4": 3,
    "x = abs(-3)": 3,
    "1 < x < 3": 2,
    "x > 1 and x != 2 and x < 4": 3,
    "not (x < 5 or x > 5)": 5,
    "x ≥ 5 and x ≤ 5": 5,
    "implies(x < 9, false) and x < 10": 9,
    "x = 9007199254740993": "9007199254740993",
}


def test_constraints_are_written_as_people_write_them() -> None:
    for expr, value in WRITTEN.items():
        assert read(variables={"x": "int"}, constraints=[expr])["output"]["model"] == {"x": value}, expr


UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({}, "in one form"),
    ({"constraints": []}, "no constraint"),
    ({"constraints": "a > 1"}, "constraints a list"),
    ({"constraints": [7]}, "a constraint is a text such as"),
    ({"constraints": [{"expr": "a > 1", "weight": 2}]}, "a constraint is a text such as"),
    ({"constraints": [{"name": 7, "expr": "true"}]}, "the name of 'true' must be a text"),
    ({"constraints": [{"name": "a b", "expr": "true"}]}, "'a b' cannot be the name"),
    ({"constraints": [{"name": "a", "expr": "true"}] * 2}, "2 constraints are called a"),
    ({"variables": {"a": "float"}, "constraints": ["a > 1"]}, "the variable a must be one of int, real, bool"),
    ({"variables": {"a)(": "int"}, "constraints": ["true"]}, "'a)(' cannot be the name of a variable"),
    ({"variables": {"a": "int"}, "constraints": ["b > 1"]}, "unknown constant b"),
    ({"variables": {"a": "int"}, "constraints": ["a + 1"]}, "z3 cannot read it"),
    ({"variables": {"a": "int"}, "constraints": ["a => 1"]}, "'a => 1' is not a constraint"),
    ({"constraints": ["true", "__import__('os').system('id')"]}, "cannot stand in a constraint"),
    ({"constraints": ["1e999 > 1"]}, "a number is too large"),
    ({"constraints": ["x" * 1001]}, "at most 1000 characters"),
    ({"constraints": ["\ud800 > 1"]}, "surrogates"),
    ({"constraints": ["-" * 900 + "1 > 0"]}, "nested at most 200 deep"),
    ({"constraints": ["(" * 400 + "1"]}, "nested deeper than 200"),
    ({"constraints": ["true"] * 501}, "at most 500 constraints"),
    ({"input": "Combine the results of Task 1 and Task 2"}, "line 1: 'Combine the results"),
    ({"smt2": "(declare-const a Int)"}, "no constraint"),
    ({"smt2": "(assert (> a 1)"}, "line 1: a parenthesis is not closed"),
    ({"smt2": "(assert true))"}, "line 1: a closing parenthesis too many"),
    ({"smt2": "(assert (> a 1))"}, "unknown constant a"),
    ({"fixed": "low", **JSON_FORM}, "fixed must be a list"),
    ({"evidence": "none", **JSON_FORM}, "evidence must be a list"),
]


def test_what_cannot_be_used_is_named_with_its_place() -> None:
    for payload, named in UNUSABLE:
        assert named in refused(read(**payload))


COMMANDS = (
    *(
        '(include "{file}")',
        '(push)(set-option :regular-output-channel "{file}")',
        "(minimize a)",
        "(assert-soft (> a 1))",
    ),
    *("(eval a)", "(help)", "()", "((assert true))", "a", "(|assert| true)"),
)
OPTIONS = (
    '(set-option :regular-output-channel "{file}")(set-option :diagnostic-output-channel "{file}")(assert true)',
    '(set-info :source |) (set-option :regular-output-channel "{file}") (|)(assert true)',
    '(assert true); \n(echo ")(set-option :regular-output-channel ""{file}"")")',
    '(assert (= "a"") (set-option :regular-output-channel ""{file}"")" ""))',
)


def test_a_command_that_does_more_than_state_a_problem_is_refused_and_no_option_reaches_z3(tmp_path: Path) -> None:
    for command in COMMANDS:
        script = f"(declare-const a Int) (assert (> a 1)) {command.format(file=tmp_path / 'written')}"
        told = read(smt2=script)["error"]
        assert "cannot be used: only declarations, definitions and assertions are" in told, command
    for script in OPTIONS:
        assert read(smt2=script.format(file=tmp_path / "written"))["status"] == "ok", script
    assert list(tmp_path.iterdir()) == []
