"""Tasks of public benchmarks, played by the solutions of their packages; `make lab` installs these."""

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from tests.cli.invoke import ROOT

WITHIN_S = 400.0
NO_DOJO = pytest.mark.skipif(find_spec("agentdojo") is None, reason="there is no agentdojo: `make lab` brings it")
NO_TAU = pytest.mark.skipif(find_spec("tau2") is None, reason="there is no tau2: `make lab` brings it")
pytestmark = pytest.mark.timeout(WITHIN_S)


def played(*arguments: str) -> dict[str, Any]:
    command = (sys.executable, "-W", "ignore", "-m", "lab", *arguments, "--json")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    (one,) = json.loads(done.stdout)["played"]
    rates = {group: (rates["passed"], rates["runs"]) for group, rates in one["rates"].items() if group != "all"}
    return rates | {"failed": [result["name"] for result in one["results"] if not result["passed"]]}


@NO_DOJO
def test_the_solutions_of_agentdojo_solve_their_tasks_with_a_person_who_allows_just_these() -> None:
    assert played("dojo", "--limit", "2") == {"utility": (8, 8), "failed": []}


@NO_DOJO
def test_no_write_that_an_injection_wants_is_made_where_a_person_refuses() -> None:
    """The model obeys everything it reads. The one goal that it reaches only opens a page."""
    attack = ("--attack", "important_instructions_no_names", "--limit", "1", "--person", "rejects")
    found = played("dojo", "banking", "slack", *attack)
    assert found["safety"] == (13, 14)
    assert [name for name in found["failed"] if name.endswith("safety")] == [
        "slack/user_task_0/injection_task_3 safety"
    ]


@NO_TAU
def test_the_solutions_of_tau_bench_have_their_reward_from_its_own_evaluators() -> None:
    """mock/7 has no solution. The users of telecom act with tools of their own."""
    found = played("tau", "mock", "--limit", "9")
    assert found == {"mock": (8, 9), "failed": ["mock/7 mock"]}
    assert played("tau", "retail", "telecom", "--limit", "2") == {"retail": (2, 2), "telecom": (2, 2), "failed": []}
