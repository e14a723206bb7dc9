"""Reading problems of the solver: three forms, and nothing but problems."""

from pathlib import Path
from typing import Any

from tests.plugins.asking import SHIPPED, ask, refused

Z3 = SHIPPED / "z3-solver"


def solved(**payload: Any) -> dict[str, Any]:
    return ask(Z3, {"relax": False} | payload, command="solve")


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
    assert [solved(**payload)["output"]["model"] for payload in FORMS] == [{"a": 3}] * len(FORMS)


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
        assert solved(variables={"x": "int"}, constraints=[expr])["output"]["model"] == {"x": value}, expr


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
        assert named in refused(solved(**payload))


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
        told = solved(smt2=script)["error"]
        assert "cannot be used: only declarations, definitions and assertions are" in told, command
    for script in OPTIONS:
        assert solved(smt2=script.format(file=tmp_path / "written"))["status"] == "ok", script
    assert list(tmp_path.iterdir()) == []
