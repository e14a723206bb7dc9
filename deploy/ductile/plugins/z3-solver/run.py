#!/usr/bin/env python3
"""Solves constraints with z3 (Ductile plugin protocol v2). Python 3.11 or newer with the package z3-solver.

If the constraints contradict each other, a continuation asks what may be relaxed. Run again with the evidence, it
relaxes as little of the contradiction as the evidence allows, and names each change with its source.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from problem import Constraint, Problem, problem_of
from relaxing import Change, Relaxed, offers_of, relax
from solving import CannotSolve, Verdict, solve

SECONDS, MEMORY_MB = 10.0, 512
SPARE_S = 2.0
"""Time before the deadline to report a timeout."""
LONGEST_QUERY = 1_000
MOST_SHOWN = 50
RELAXED = {"sat": "", "unsat": "relaxed, which is not enough:", "unknown": "relaxed so far:"}
"""Heading of the changes, by the verdict; for `sat` the first line says it."""

Answer = dict[str, Any]


def answer(request: dict[str, Any]) -> Answer:
    """Returns the response to a request. Raises ValueError and CannotSolve."""
    config = request.get("config") or {}
    solver = _solver(config, request.get("deadline_at"))
    if request["command"] == "health":
        solver(problem_of({"input": "int x\nx = 1"}))
        return {"status": "ok", "result": "z3-solver can be run"}
    payload = (request.get("event") or request).get("payload") or {}
    problem, fixed = problem_of(payload), _fixed(_list(payload, "fixed"))
    evidence = [one for one in _list(payload, "evidence") if isinstance(one, dict)]
    reached = relax(problem, offers_of(evidence), solver, fixed=fixed)
    response = _response(reached)
    if reached.verdict.status != "unsat" or not payload.get("relax", True):
        return response
    query = _query([one for one in _core(reached) if one.name not in fixed])
    if why_not := _why_no_continuation(query, [one.get("query") for one in evidence], payload):
        return response | {"result": f"{response['result']}\n{why_not}"}
    reason = f"These constraints cannot all hold: {'; '.join(map(str, _core(reached)))}"[:LONGEST_QUERY]
    return response | {
        "continuation": {"action": "retrieve", "query": query, "reason": reason, "confidence": "low"},
    }


def _query(may_be_relaxed: list[Constraint]) -> str:
    named = "; ".join(map(str, may_be_relaxed))
    return f"What may be relaxed, and to what? {named}"[:LONGEST_QUERY] if named else ""


def _why_no_continuation(query: str, earlier: list[Any], payload: dict[str, Any]) -> str:
    """Returns the reason for asking nothing more; "" if it asks."""
    if not query:
        return "All of these are fixed."
    if query in earlier:
        return "Nothing that was found says how one of these may be relaxed."
    return "What may be relaxed could not be asked any more." if payload.get("continuations_left") == 0 else ""


def _response(reached: Relaxed) -> Answer:
    verdict = reached.verdict
    output: dict[str, Any] = {"status": verdict.status, "constraints": len(reached.problem.constraints)}
    if verdict.status == "sat":
        output["model"] = verdict.values
    if verdict.core:
        output["core"] = [{"name": one.name, "expr": one.source} for one in _core(reached)]
    output["relaxed"] = [_change(one) for one in reached.changes]
    return {"status": "ok", "result": "\n".join(_lines(reached)), "output": output}


def _lines(reached: Relaxed) -> Iterator[str]:
    yield _heading(reached)
    yield from _listed("", [str(one) for one in _core(reached)])
    yield from _listed(RELAXED[reached.verdict.status], [str(one) for one in reached.changes])
    yield from _listed("offered, and no constraint of this problem:", [one[:200] for one in reached.unusable])
    if values := [f"{name} = {json.dumps(value)}" for name, value in reached.verdict.values.items()]:
        yield f"values: {', '.join(values[:MOST_SHOWN])}{', …' * (len(values) > MOST_SHOWN)}"


def _heading(reached: Relaxed) -> str:
    verdict, many = reached.verdict, len(reached.problem.constraints)
    if verdict.status == "unknown":
        return f"unknown: z3 cannot tell whether the {many} constraints can all hold ({verdict.why[:200]})"
    if verdict.status == "unsat":
        return f"unsat: of {many} constraints these {len(verdict.core)} cannot all hold:"
    changed = len({one.was.name for one in reached.changes})
    return f"sat: all {many} constraints hold" + (f", with {changed} of them relaxed:" if changed else "")


def _listed(heading: str, lines: list[str]) -> list[str]:
    shown = [f"- {line}" for line in lines[:MOST_SHOWN]] + ["- …"] * (len(lines) > MOST_SHOWN)
    return [heading, *shown] if shown and heading else shown


def _core(reached: Relaxed) -> list[Constraint]:
    return [one for one in reached.problem.constraints if one.name in reached.verdict.core]


def _change(change: Change) -> dict[str, str]:
    return {"name": change.was.name, "from": change.was.source, "to": change.now.source, "by": change.by}


def _fixed(names: list[Any]) -> frozenset[str]:
    if not all(isinstance(name, str) for name in names):
        raise ValueError("fixed must be a list of names of constraints")
    return frozenset(names)


def _list(payload: dict[str, Any], name: str) -> list[Any]:
    given = payload.get(name, [])
    if isinstance(given, list):
        return given
    raise ValueError(f"{name} must be a list")


def _solver(config: dict[str, Any], deadline: object) -> Callable[[Problem], Verdict]:
    """Returns a solver; all its problems share the time of this call."""
    seconds = max(0.0, min(_number(config, "timeout_seconds", SECONDS), _left_s(deadline) - SPARE_S))
    memory_mb, until = int(_number(config, "memory_mb", MEMORY_MB)), time.monotonic() + seconds

    def solver(problem: Problem) -> Verdict:
        left = until - time.monotonic()
        if left <= 0:
            raise CannotSolve(f"z3 found no answer within {seconds:.1f} s", "timeout")
        return solve(problem, seconds=left, memory_mb=memory_mb)

    return solver


def _number(config: dict[str, Any], name: str, default: float) -> float:
    given = config.get(name, default)
    if not isinstance(given, int | float) or isinstance(given, bool) or given <= 0:
        raise CannotSolve(f"the plugin's configuration: {name} must be a number above 0", "configuration")
    return float(given)


def _left_s(deadline: object) -> float:
    try:
        return (datetime.fromisoformat(str(deadline)) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return SECONDS + SPARE_S


def main() -> None:
    try:
        response = answer(json.load(sys.stdin.buffer))
    except ValueError as error:
        response = {"status": "error", "error": str(error), "retry": False, "error_class": "invalid_arguments"}
    except CannotSolve as error:
        response = {"status": "error", "error": str(error), "retry": False, "error_class": error.error_class}
    sys.stdout.buffer.write(json.dumps(response, ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
