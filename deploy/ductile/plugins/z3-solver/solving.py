"""z3 in a process of its own, limited in time and memory. The only file that knows z3.

Its parser cannot be stopped, and it ends its process when memory runs out: the parent reports both.
"""

import json
import re
import resource
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from problem import Problem
from smtlib import written

START_S = 5.0
"""Time for loading Python and z3, beyond the time to solve."""
BESIDE_MB = 1024
"""Address space of the process beyond what z3 may use."""
EXACT = 2**53
"""Every reader of JSON keeps whole numbers below it exact."""
MOST_VALUES, LONGEST_VALUE = 200, 200
NOT_INSTALLED = "z3-solver is not installed where plugins run"


class CannotSolve(Exception):
    """There is no verdict; the message says why, and the class implies the remedy."""

    def __init__(self, message: str, error_class: str) -> None:
        super().__init__(message)
        self.error_class = error_class


@dataclass(frozen=True)
class Verdict:
    """`values`: of variables that matter. `core`: names of constraints that cannot all hold."""

    status: Literal["sat", "unsat", "unknown"]
    values: dict[str, Any]
    core: tuple[str, ...]
    why: str = ""


def solve(problem: Problem, *, seconds: float, memory_mb: int) -> Verdict:
    """Returns the verdict. Raises CannotSolve."""
    answer = _ask_process(
        {
            "declared": problem.declared,
            "constraints": [written(one.term) for one in problem.constraints],
            "milliseconds": max(1, int(seconds * 1000)),
            "memory_mb": memory_mb,
        }
    )
    if "error" in answer:
        raise CannotSolve(answer["error"], answer["error_class"])
    if answer["why"] in ("timeout", "canceled"):
        raise CannotSolve(_too_long(seconds), "timeout")
    names = [one.name for one in problem.constraints]
    return Verdict(answer["status"], answer["values"], tuple(names[at] for at in answer["core"]), answer["why"])


def _ask_process(question: dict[str, Any]) -> dict[str, Any]:
    command, seconds = [sys.executable, "-B", str(Path(__file__).resolve())], question["milliseconds"] / 1000
    try:
        done = subprocess.run(  # noqa: S603 - ourselves
            command, input=json.dumps(question).encode(), capture_output=True, timeout=seconds + START_S, check=False
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise CannotSolve(_too_long(seconds), "timeout") from error
    except json.JSONDecodeError as error:
        why = f"z3 has ended without an answer: it may use {question['memory_mb']} MB"
        raise CannotSolve(why, "tool_error") from error
    return answer


def _too_long(seconds: float) -> str:
    return f"z3 found no answer within {seconds:.1f} s: make the problem smaller, or its numbers bounded"


def main() -> None:
    """Runs in the process with z3."""
    question = json.load(sys.stdin)
    try:
        import z3
    except Exception as error:  # noqa: BLE001 - its library may be missing, or made for another machine
        why = f"{NOT_INSTALLED} ({sys.executable}): pip install z3-solver ({type(error).__name__})"
        print(json.dumps({"error": why, "error_class": "configuration"}))  # noqa: T201
        return
    _limit_process(question["memory_mb"], question["milliseconds"])
    z3.set_param("memory_max_size", question["memory_mb"])
    try:
        answer = _solved(z3, question)
    except z3.Z3Exception as error:
        answer = _error(error, question["memory_mb"])
    print(json.dumps(answer))  # noqa: T201


def _error(error: Exception, memory_mb: int) -> dict[str, str]:
    """Leaves out the lines that z3 names: the caller has not seen that text."""
    message = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
    if "memory" in message:
        return {"error": f"z3 may use {memory_mb} MB, which is not enough", "error_class": "tool_error"}
    errors = re.findall(r'line \d+ column \d+: (.*?)"\)', message, re.DOTALL) or [message]
    return {"error": f"z3 cannot read it: {'; '.join(errors)[:500]}", "error_class": "invalid_arguments"}


def _solved(z3: Any, question: dict[str, Any]) -> dict[str, Any]:
    formulas = [f"(assert {one})" for one in question["constraints"]]
    asserted = list(z3.parse_smt2_string("\n".join([question["declared"], *formulas])))
    solver = z3.Solver()
    solver.set("timeout", question["milliseconds"])
    solver.set("core.minimize", True)
    marks = [z3.FreshConst(z3.BoolSort(), "constraint") for _ in formulas]
    for mark, formula in zip(marks, asserted, strict=True):
        solver.assert_and_track(formula, mark)
    status = str(solver.check())
    core = {mark.get_id() for mark in solver.unsat_core()} if status == "unsat" else set()
    return {
        "status": status,
        "values": _values(z3, solver.model(), {str(mark) for mark in marks}) if status == "sat" else {},
        "core": [at for at, mark in enumerate(marks) if mark.get_id() in core],
        "why": solver.reason_unknown() if status == "unknown" else "",
    }


def _values(z3: Any, model: Any, marks: set[str]) -> dict[str, Any]:
    found = {str(one): model[one] for one in model.decls() if one.arity() == 0 and str(one) not in marks}
    return {name: _value(z3, found[name]) for name in sorted(found)[:MOST_VALUES]}


def _value(z3: Any, value: Any) -> Any:
    if z3.is_int_value(value) or (z3.is_rational_value(value) and value.denominator_as_long() == 1):
        whole = int(str(value.numerator_as_long() if z3.is_rational_value(value) else value.as_long()))
        return whole if abs(whole) < EXACT else str(whole)
    if z3.is_true(value) or z3.is_false(value):
        return z3.is_true(value)
    return str(value).replace("\n", " ")[:LONGEST_VALUE]


def _limit_process(memory_mb: int, milliseconds: int) -> None:
    """z3 may not write files, and an orphaned process ends soon."""
    seconds = int(milliseconds / 1000 + START_S) + 1
    room = (memory_mb + BESIDE_MB) * 1024 * 1024
    limits = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_AS: room, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    for limit, most in limits.items():
        with suppress(ValueError, OSError):  # not every system has each of them
            resource.setrlimit(limit, (most, most))


if __name__ == "__main__":
    main()
