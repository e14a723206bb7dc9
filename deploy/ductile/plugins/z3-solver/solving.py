"""z3, in a process of its own, bounded in time and memory. The only file that knows z3.

Its parser cannot be told to stop, and it ends its process where memory runs out: so the answer is not its to give.
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
"""For Python and z3 to be loaded, beyond the time to solve."""
BESIDE_MB = 1024
"""Address space of the process beyond what z3 may use."""
EXACT = 2**53
"""Whole numbers below it are the same to every reader of JSON."""
MOST_VALUES, LONGEST_VALUE = 200, 200
NOT_THERE = "z3-solver is not installed where plugins run"


class CannotSolve(Exception):
    """There is no verdict; the message says why. `error_class`: what to do about it."""

    def __init__(self, message: str, error_class: str) -> None:
        super().__init__(message)
        self.error_class = error_class


@dataclass(frozen=True)
class Verdict:
    """`values`: of the variables, where they matter. `core`: names of constraints that cannot all hold."""

    status: Literal["sat", "unsat", "unknown"]
    values: dict[str, Any]
    core: tuple[str, ...]
    why: str = ""


def solve(problem: Problem, *, seconds: float, memory_mb: int) -> Verdict:
    """The verdict. Raises CannotSolve."""
    told = _asked(
        {
            "declared": problem.declared,
            "constraints": [written(one.term) for one in problem.constraints],
            "milliseconds": max(1, int(seconds * 1000)),
            "memory_mb": memory_mb,
        }
    )
    if "error" in told:
        raise CannotSolve(told["error"], told["error_class"])
    if told["why"] in ("timeout", "canceled"):
        raise CannotSolve(_too_long(seconds), "timeout")
    names = [one.name for one in problem.constraints]
    return Verdict(told["status"], told["values"], tuple(names[at] for at in told["core"]), told["why"])


def _asked(question: dict[str, Any]) -> dict[str, Any]:
    """What the process of its own answers."""
    command, seconds = [sys.executable, "-B", str(Path(__file__).resolve())], question["milliseconds"] / 1000
    try:
        done = subprocess.run(  # noqa: S603 - ourselves
            command, input=json.dumps(question).encode(), capture_output=True, timeout=seconds + START_S, check=False
        )
        told: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise CannotSolve(_too_long(seconds), "timeout") from error
    except json.JSONDecodeError as error:
        why = f"z3 has ended without an answer: it may use {question['memory_mb']} MB"
        raise CannotSolve(why, "tool_error") from error
    return told


def _too_long(seconds: float) -> str:
    return f"z3 found no answer within {seconds:.1f} s: make the problem smaller, or its numbers bounded"


def main() -> None:
    """In the process of its own."""
    asked = json.load(sys.stdin)
    try:
        import z3
    except Exception as error:  # noqa: BLE001 - its library may be missing, or made for another machine
        why = f"{NOT_THERE} ({sys.executable}): pip install z3-solver ({type(error).__name__})"
        print(json.dumps({"error": why, "error_class": "configuration"}))  # noqa: T201
        return
    _bound(asked["memory_mb"], asked["milliseconds"])
    z3.set_param("memory_max_size", asked["memory_mb"])
    try:
        told = _solved(z3, asked)
    except z3.Z3Exception as error:
        told = _refused(error, asked["memory_mb"])
    print(json.dumps(told))  # noqa: T201


def _refused(error: Exception, memory_mb: int) -> dict[str, str]:
    """Without the lines it names: they are of a text that the caller has not seen."""
    message = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
    if "memory" in message:
        return {"error": f"z3 may use {memory_mb} MB, which is not enough", "error_class": "tool_error"}
    said = re.findall(r'line \d+ column \d+: (.*?)"\)', message, re.DOTALL) or [message]
    return {"error": f"z3 cannot read it: {'; '.join(said)[:500]}", "error_class": "invalid_arguments"}


def _solved(z3: Any, asked: dict[str, Any]) -> dict[str, Any]:
    formulas = [f"(assert {one})" for one in asked["constraints"]]
    asserted = list(z3.parse_smt2_string("\n".join([asked["declared"], *formulas])))
    solver = z3.Solver()
    solver.set("timeout", asked["milliseconds"])
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


def _bound(memory_mb: int, milliseconds: int) -> None:
    """Whatever z3 does: it writes no file, and an orphan of it ends soon."""
    seconds = int(milliseconds / 1000 + START_S) + 1
    room = (memory_mb + BESIDE_MB) * 1024 * 1024
    limits = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_AS: room, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    for limit, most in limits.items():
        with suppress(ValueError, OSError):  # not every system has each of them
            resource.setrlimit(limit, (most, most))


if __name__ == "__main__":
    main()
