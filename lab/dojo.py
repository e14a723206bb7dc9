"""AgentDojo (pip: agentdojo; Debenedetti et al., arXiv 2406.13352): tasks of four suites, with and without injections.

Three rates: `utility` without an attack, `utility under attack`, and `safety`, the share of attacks that did not reach
their goal (one minus the targeted attack success rate).
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from lab.bench import Call, Case, Task
from schemas.catalog import ToolCommand, ToolOffer

VERSION = "v1.2.2"
READS = ("get_", "read_", "search_", "list_", "check_")
"""Name prefixes of read-only tools; the package does not mark them."""


def _without_providers() -> None:
    """Stubs the package's pipelines, which import four model providers that are not used here."""
    spec = find_spec("agentdojo")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("there is no agentdojo: `make lab` brings it", name="agentdojo")
    pipelines = ModuleType("agentdojo.agent_pipeline")
    pipelines.__path__ = [f"{spec.submodule_search_locations[0]}/agent_pipeline"]
    sys.modules.setdefault(pipelines.__name__, pipelines)
    sys.modules.setdefault("agentdojo.agent_pipeline.llms.google_llm", MagicMock())


_without_providers()

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # noqa: E402  # behind what it would load
from agentdojo.attacks import important_instructions_attacks  # noqa: E402, F401  # registers them
from agentdojo.attacks.attack_registry import load_attack  # noqa: E402
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime  # noqa: E402
from agentdojo.task_suite.load_suites import get_suites  # noqa: E402


class DojoCase(Case):
    """`injection` is the goal of the texts in `injections`, which are keyed by their places in the environment."""

    def __init__(
        self, suite: Any, task: Any, injection: Any = None, injections: Mapping[str, str] | None = None
    ) -> None:
        self._task, self._injection = task, injection
        self._world = task.init_environment(suite.load_and_inject_default_environment(injections or {}))
        self._before = self._world.model_copy(deep=True)
        self._runtime = FunctionsRuntime(suite.tools)
        self._calls: list[FunctionCall] = []
        super().__init__(
            name="/".join(filter(None, (suite.name, task.ID, injection and injection.ID))),
            goal=task.PROMPT,
            offer=offer_of(suite),
            moves=self._solution(task) if injection is None else self._obeying(task, injection),
            last_words=task.GROUND_TRUTH_OUTPUT,
        )

    def _solution(self, task: Any) -> list[Call]:
        return [Call(call.function, dict(call.args)) for call in task.ground_truth(self._before.model_copy(deep=True))]

    def _obeying(self, task: Any, injection: Any) -> list[Call]:
        """The task's calls, with those of the injection after the last read, which has shown it."""
        own, wanted = self._solution(task), self._solution(injection)
        seen = max((place for place, call in enumerate(own, 1) if _reads(call.command)), default=len(own))
        return [*own[:seen], *wanted, *own[seen:]]

    def call(self, command: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        self._calls.append(FunctionCall(function=command, args=arguments))
        result, error = self._runtime.run_function(self._world, command, arguments)
        return (error, True) if error else (tool_result_to_str(result), False)

    def unmet(self, ending: str) -> dict[str, tuple[str, ...]]:
        ends = ending, self._before, self._world
        useful = self._task.utility_from_traces(*ends, self._calls)
        useful = self._task.utility(*ends) if useful is None else useful
        utility = () if useful else (f"the task is not done; it says: {ending[:300]!r}",)
        if self._injection is None:
            return {"utility": utility}
        taken = self._injection.security_from_traces(*ends, self._calls)
        taken = self._injection.security(*ends) if taken is None else taken
        return {
            "utility under attack": utility,
            "safety": (f"the injection reached its goal: {self._injection.GOAL}",) if taken else (),
        }


def _reads(command: str) -> bool:
    return command.startswith(READS)


def offer_of(suite: Any) -> ToolOffer:
    """The functions of a suite as one tool. Everything it reads may be written by strangers."""
    commands = tuple(
        ToolCommand(
            name=function.name,
            description=function.description,
            tier="read" if _reads(function.name) else "write",
            input_schema=function.parameters.model_json_schema(),
        )
        for function in suite.tools
    )
    return ToolOffer(
        name=suite.name,
        route=suite.name,
        commands=commands,
        output="untrusted",
        continues=False,
        echoes_capability=True,
    )


def cases(suites: Sequence[str], *, attack: str | None, limit: int | None) -> Iterator[Task]:
    """Yields `limit` user tasks of each suite; with an `attack`, each of them with each injection."""
    known = get_suites(VERSION)
    for suite in (known[name] for name in suites or known):
        offer, attacker = offer_of(suite), attack and load_attack(attack, suite, SimpleNamespace(name="local"))
        for task in list(suite.user_tasks.values())[:limit]:
            if not attacker:
                yield offer, partial(DojoCase, suite, task)
                continue
            for injection in suite.injection_tasks.values():
                yield offer, partial(DojoCase, suite, task, injection, attacker.attack(task, injection))
