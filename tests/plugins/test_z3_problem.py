"""How the solver's problems are read: in three forms, and never as more than a problem."""

from pathlib import Path
from typing import Any

import pytest

from tests.plugins.asking import SHIPPED, ask

Z3 = SHIPPED / "z3-solver"


def solved(**payload: Any) -> dict[str, Any]:
    return ask(Z3, {"relax": False} | payload, command="solve")


def refused(**payload: Any) -> str:
    response = solved(**payload)
    assert (response["status"], response["error_class"], response["retry"]) == ("error", "invalid_arguments", False)
    return str(response["error"])


JSON_FORM = {"variables": {"a": "int"}, "constraints": [{"name": "low", "expr": "a >= 3"}, "a < 4"]}


@pytest.mark.parametrize(
    "payload",
    [
        JSON_FORM,
        {"smt2": "(declare-const a Int)(assert (! (>= a 3) :named low))(assert (< a 4))"},
        {"smt2": ";3\n(set-logic QF_LIA)\n(declare-fun a () Int)\n(assert (>= a 3))(assert (< a 4))(check-sat)(exit)"},
        {"smt2": "(define-fun less ((x Int)) Bool (< x 4))(declare-const a Int)(assert (and (>= a 3) (less a)))"},
        {"input": "int a\n# what it is about\nlow: a >= 3\n\na < 4"},
        {"input": "  (declare-const a Int)\n(assert (= a 3))"},
    ],
)
def test_a_problem_is_read_in_each_form(payload: dict[str, Any]) -> None:
    assert solved(**payload)["output"]["model"] == {"a": 3}


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        ("x = 2 + 3 * 4", 14),
        ("2 * (x + 1) = 8", 3),
        ("x == 7 // 2", 3),
        ("x = 7 % 4", 3),
        ("x = abs(-3)", 3),
        ("1 < x < 3", 2),
        ("x > 1 and x != 2 and x < 4", 3),
        ("not (x < 5 or x > 5)", 5),
        ("x ≥ 5 and x ≤ 5", 5),
        ("implies(x < 9, false) and x < 10", 9),
        ("x = 9007199254740993", "9007199254740993"),
    ],
)
def test_constraints_are_written_as_people_write_them(expr: str, value: object) -> None:
    assert solved(variables={"x": "int"}, constraints=[expr])["output"]["model"] == {"x": value}


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        ({}, "in one form"),
        (JSON_FORM | {"input": "int a"}, "in one form"),
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
        ({"variables": {"a": "int"}, "constraints": ["a ** 9 > 1"]}, "'a ** 9' cannot stand in a constraint"),
        ({"variables": {"a": "int"}, "constraints": ["a => 1"]}, "'a => 1' is no constraint"),
        ({"constraints": ["true", "__import__('os').system('id')"]}, "cannot stand in a constraint"),
        ({"constraints": ["[x for x in ()] == 1"]}, "cannot stand in a constraint"),
        ({"constraints": ["1e999 > 1"]}, "a number is too large"),
        ({"constraints": ["1 < 2\n3 < 4"]}, "is no constraint"),
        ({"constraints": ["x" * 1001]}, "at most 1000 characters"),
        ({"constraints": ["\ud800 > 1"]}, "surrogates"),
        ({"constraints": ["-" * 900 + "1 > 0"]}, "nested at most 200 deep"),
        ({"constraints": ["(" * 400 + "1"]}, "nested deeper than 200"),
        ({"constraints": ["true"] * 501}, "at most 500 constraints"),
        ({"input": "Combine the results of Task 1 and Task 2"}, "line 1: 'Combine the results"),
        ({"input": "int a\na > 1\na is large"}, "line 3:"),
        ({"input": "int a-b\na > 1"}, "'a-b' cannot be the name of a variable"),
        ({"input": " "}, "input must be a text"),
        ({"smt2": "(declare-const a Int)"}, "no constraint"),
        ({"smt2": "(assert (> a 1)"}, "line 1: a parenthesis is not closed"),
        ({"smt2": "(assert true))"}, "line 1: a closing parenthesis too many"),
        ({"smt2": "\n\n(assert (= 'a 1))"}, "line 3:"),
        ({"smt2": "(assert (> a 1))"}, "unknown constant a"),
        ({"smt2": "x" * 50_001}, "at most 50000 characters"),
        ({"fixed": "low", **JSON_FORM}, "fixed must be a list"),
        ({"fixed": [7], **JSON_FORM}, "fixed must be a list"),
        ({"evidence": "none", **JSON_FORM}, "evidence must be a list"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_with_its_place(payload: dict[str, Any], named: str) -> None:
    assert named in refused(**payload)


@pytest.mark.parametrize(
    "command",
    [
        '(include "{file}")',
        '(push)(set-option :regular-output-channel "{file}")',
        "(minimize a)",
        "(assert-soft (> a 1))",
        "(eval a)",
        "(help)",
        "()",
        "((assert true))",
        "a",
        "(|assert| true)",
    ],
)
def test_a_command_that_does_more_than_state_a_problem_is_refused(command: str, tmp_path: Path) -> None:
    script = f"(declare-const a Int) (assert (> a 1)) {command.format(file=tmp_path / 'written')}"
    assert "cannot be used: only declarations, definitions and assertions are" in refused(smt2=script)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "script",
    [
        '(set-option :regular-output-channel "{file}")(set-option :diagnostic-output-channel "{file}")(assert true)',
        '(set-info :source |) (set-option :regular-output-channel "{file}") (|)(assert true)',
        '(assert true); \n(echo ")(set-option :regular-output-channel ""{file}"")")',
        '(assert (= "a"") (set-option :regular-output-channel ""{file}"")" ""))',
    ],
)
def test_no_option_of_a_script_reaches_z3(script: str, tmp_path: Path) -> None:
    response = solved(smt2=script.format(file=tmp_path / "written"))
    assert response["status"] == "ok", response
    assert list(tmp_path.iterdir()) == []
