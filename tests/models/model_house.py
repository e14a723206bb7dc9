"""What the tests of every model adapter stand on: questions of real runs, replies as models write them, and `Served`.

`Served` is an adapter together with the server that it talks to over HTTP. Each provider has a module
`tests.models.fake_<provider>` with `serve(**settings)`, where `settings` are those of `ModelSettings`.
"""

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol

from agent_service.core.phases import Phase, Reflection, Verdict
from agent_service.core.replacing import replace
from agent_service.core.state import RunState
from agent_service.core.waiting import Asking, ForModel
from agent_service.journal import Commit
from agent_service.ports import Model, Question
from tests.kit import runs
from tests.kit.runs import NOON

KEY = "sk-test-0123456789-secret"
"""The key that every fake wants to see."""

Reply = dict[str, Any] | str | Callable[[dict[str, Any]], Any]

FRAMING = {
    "goal_statement": "The answer is known and written down.",
    "definition_of_done": ["It is found", "It is checked", "It is told"],
    "constraints": ["Nothing is bought"],
    "assumptions": [],
    "hypothesis": "A search finds it.",
}
PLAN = {
    "rationale": "nothing is known yet",
    "outline": ["search", "compare", "tell"],
    "tool": "search",
    "command": "query",
    "arguments_json": '{"text": "the answer"}',
    "expected_outcome": "a page that tells it",
    "risk": "",
}
REFLECTION = {
    "summary": "A part is known.",
    "met": [{"item": "d1", "evidence": "step:1"}],
    "facts": ["The answer is 42 (step:1)"],
    "verdict": "continue",
    "outcome": "",
}
OPENING = {"framing": FRAMING, "plan": PLAN}
TURN = {"reflection": REFLECTION, "plan": PLAN}
DIGEST = {"memory": ["The answer is 42 (step:1)"]}


class Served(Protocol):
    """A model adapter and its server. What is scripted is used up call by call, in order."""

    @property
    def model(self) -> Model: ...

    @property
    def requests(self) -> Sequence[dict[str, Any]]:
        """The parsed bodies of all calls, oldest first."""

    def answer(self, reply: Reply) -> None:
        """Reply with an object, written as JSON; with a text as it is; or with what a callable makes of the request."""

    def refuse(self, explanation: str = "") -> None:
        """Decline the next call, as the provider does when its rules forbid an answer."""

    def cut(self, text: str) -> None:
        """Reply with `text`, cut because it reached the most tokens that were asked for."""

    def fail(self, status: int, code: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Answer the next call with an HTTP error. `code` is the provider's name of the cause."""


def serve(provider: str, **settings: Any) -> AbstractAsyncContextManager[Served]:
    """The adapter of `provider` and its server."""
    served: AbstractAsyncContextManager[Served] = importlib.import_module(_module(provider)).serve(**settings)
    return served


def providers() -> list[str]:
    """Those that have a fake."""
    return [name for name in ("anthropic", "openai", "ollama") if importlib.util.find_spec(_module(name))]


def asked(commit: Commit, *, now: datetime = NOON) -> Question:
    """The question that `commit` leaves open."""
    assert commit.state.asking is not None, "the run asks nothing"
    return question(commit.state, commit.state.asking.phase, now=now)


def question(state: RunState, phase: Phase, *, now: datetime = NOON) -> Question:
    """`phase` asked of `state`, whatever it asks itself."""
    asking = state.asking or Asking(call=state.calls + 1, phase=phase)
    state = replace(state, waiting=ForModel(asking=replace(asking, phase=phase), reserve=state.reserve))
    return Question(state=state, call=asking.call, phase=phase, with_plan=state.brief.fused, now=now)


def framing(number: int = 1) -> Question:
    """What a new run asks first."""
    return asked(runs.started(_roomy(runs.accepted(number))))


def reflecting(steps: int = 1, number: int = 1) -> Question:
    """What a run asks when its newest of `steps` tool results is there."""
    commit = runs.replied(runs.started(_roomy(runs.accepted(number))), runs.FRAMING, runs.plan(1))
    for step in range(1, steps):
        found = Reflection(verdict=Verdict.CONTINUE, summary=f"part {step} is known", facts=(f"fact {step}",))
        commit = runs.replied(runs.returned(commit), found, runs.plan(step + 1))
    return asked(runs.returned(commit))


def planning() -> Question:
    """What a framed run without a plan asks."""
    return asked(runs.replied(runs.started(runs.accepted()), runs.FRAMING))


def separate(asked: Question) -> Question:
    """The same question in a run that plans apart from framing and reflecting."""
    state = replace(asked.state, brief=replace(asked.state.brief, fused=False))
    return Question(state=state, call=asked.call, phase=asked.phase, with_plan=False, now=asked.now)


def _roomy(commit: Commit) -> Commit:
    """The same run with leave to take many steps."""
    limits = replace(commit.state.brief.limits, max_steps=1000, max_attempts_of_run=1000)
    return replace(commit, state=replace(commit.state, brief=replace(commit.state.brief, limits=limits)))


def _module(provider: str) -> str:
    return f"tests.models.fake_{provider}"
