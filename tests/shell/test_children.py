"""Recursion depth of starts, the executor of child runs, and results with little correlation."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from pydantic_core import to_json

from agent_service.core import limits
from agent_service.core.brief import Grant
from agent_service.errors import Damaged, LimitRefused
from agent_service.kill_switch import KillSwitch
from agent_service.metrics import IncomingMetrics
from agent_service.run.children import ChildRuns
from agent_service.run.inbound import InboundMessage, InvalidMessage, UnknownRun
from agent_service.run.intake import Intake, depth_of
from agent_service.run.messages import OutgoingMessage
from agent_service.run.turn import Turns
from agent_service.settings import AgentSettings
from agent_service.trust.proofs import Capabilities
from ductile_gateway.calls.artifacts import digest_in_name
from groundwork.service.keys import KeyRing
from groundwork.telemetry.metrics import Instruments
from schemas import keys, subjects
from schemas.events import AgenticStart, ToolResult
from tests.core.cues import RUN_ID, answer, asks_agents, child_of, done, plans, returns, takes
from tests.core.script import Script
from tests.core.words import PARENT, run_at
from tests.kit.fakes import FakeClock, MemoryArtifacts
from tests.shell.stored import stored, thinks

ABOVE = run_at("run planning depth=2").state


def start(**fields: Any) -> AgenticStart:
    return AgenticStart(goal="go on", **fields)


@pytest.mark.parametrize(
    ("said", "depth"),
    [
        ({}, 0),
        ({"depth": 1}, 1),
        ({"context": {"agentic_depth": 2}}, 2),
        ({"depth": 1, "context": {"agentic_depth": 2}}, 2),
        ({"context": {"agentic_depth": -1}}, 5),
        ({"context": {"agentic_depth": True}}, 5),
        ({"context": {"agentic_depth": "0"}}, 5),
        ({"parent_run_id": "run_1"}, 3),
        ({"parent_run_id": "run_1", "depth": 0, "context": {"agentic_depth": 0}}, 3),
        ({"parent_run_id": "run_1", "depth": 4}, 4),
    ],
)
def test_a_start_is_as_deep_as_the_deepest_that_is_said_of_it(said: dict[str, Any], depth: int) -> None:
    assert depth_of(start(**said), ABOVE if "parent_run_id" in said else None, deepest=5) == depth


@pytest.mark.parametrize("said", [{"depth": 3}, {"parent_run_id": "run_1"}])
def test_one_that_would_be_deeper_than_the_deepest_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(LimitRefused, match="would be 3, and agents may call each other 2 times in a row"):
        depth_of(start(**said), ABOVE if "parent_run_id" in said else None, deepest=2)


@pytest.mark.parametrize("parent", [None, run_at("run planning ; cancel").state], ids=["unknown", "ended"])
def test_a_start_that_names_a_run_which_is_not_under_way_is_refused(parent: Any) -> None:
    with pytest.raises(LimitRefused, match="is not a run that is under way here"):
        depth_of(start(parent_run_id="run_1"), parent, deepest=5)


# The executor


class Agent:
    def __init__(self, store: Any) -> None:
        self.store, self.artifacts, self.said = store, MemoryArtifacts(), list[OutgoingMessage]()
        self.capabilities, self.kill_switch = Capabilities(KeyRing.fresh()), KillSwitch()
        parts: Any = (store, self, thinks(), FakeClock(), [])
        self.turns = Turns(*parts)
        self.children = ChildRuns(self.turns, self.artifacts)

    async def publish(self, effect: OutgoingMessage, **__: object) -> None:
        self.said.append(effect)

    @property
    def results(self) -> list[ToolResult]:
        told = [one for one in self.said if one.subject == subjects.TOOL_RESULT]
        assert all(one.proves for one in told), "each brings the capability of its request"
        return [ToolResult.model_validate(one.payload) for one in told]

    async def hears(self, effect: OutgoingMessage, *, capable: bool = True) -> None:
        proven = {"capability": self.capabilities.of_request(effect.proves)} if capable else {}
        body = to_json({"type": effect.subject, "payload": {**proven, **effect.payload}})
        await self.children.receive(InboundMessage(subject=effect.subject, body=body, place="7"))


@asynccontextmanager
async def agent(*stories: Script) -> AsyncIterator[Agent]:
    async with stored(*stories) as store:
        yield Agent(store)


def request_of(parent: Script) -> OutgoingMessage:
    return next(one for one in parent.story[-1].messages if one.proves)


async def test_a_request_without_its_capability_counts_for_nothing() -> None:
    parent = run_at(PARENT)
    async with agent(parent) as made:
        with pytest.raises(InvalidMessage, match="counts for nothing"):
            await made.hears(request_of(parent), capable=False)
        assert not await made.store.queued(5)


async def test_a_request_of_a_run_that_is_not_here_is_tried_again() -> None:
    async with agent() as made:
        with pytest.raises(UnknownRun):
            await made.hears(request_of(run_at(PARENT)))


async def test_a_run_that_is_reopened_gets_the_child_that_nobody_had_woken() -> None:
    parent = run_at(PARENT)
    handed_over = parent.branch() >> returns(step=7, tool="fetch")
    async with agent(handed_over) as made:
        await made.hears(request_of(parent))
        assert not await made.store.queued(5)
        reopened = handed_over.branch() >> answer("go on")
        await made.turns.take(RUN_ID, reopened.story[-1].event)
        assert await made.store.queued(5) == [child.run_id for child in parent.state.children]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"tools": ["mail"]}, "tools mail are not on offer here, so no other agent gets them"),
        ({"constraints": {"deadline_at": "tomorrow"}}, "constraints.deadline_at: must be an RFC 3339 instant"),
    ],
)
async def test_a_call_that_cannot_be_carried_out_is_answered_and_costs_nothing(
    arguments: dict[str, Any], why: str
) -> None:
    parent = run_at("run planning max_depth=1") >> asks_agents("x", **arguments)
    async with agent(parent) as made:
        await made.hears(request_of(parent))
        (told,) = made.results
    parent = parent >> takes(told)
    assert why in str(parent.state.last_output)
    assert (parent.state.spent.child_steps, parent.outcomes) == (0, ("ask reflect",))


async def test_a_child_that_cannot_be_read_is_an_error_of_its_step_and_has_spent_its_grant() -> None:
    parent = run_at("run planning max_depth=1 max_steps=9 max_tokens=1000 ; agents x")
    child, grant = child_of(parent), parent.state.pendings[0].grant
    async with agent(parent, child) as made:
        made.store.quarantine(Damaged(child.state.run_id, "its state"))
        await made.children.settle(parent.state, whole=True)
        (told,) = made.results
    parent = parent >> takes(told)
    assert grant
    assert (told.error and told.error.error_class, parent.outcomes) == ("child_lost", ("ask reflect",))
    assert (parent.state.spent.lost_tokens, parent.state.spent.child_steps) == (grant.tokens, grant.steps)
    assert limits.outstanding_grants(parent.state) == Grant(steps=0, tokens=0, cost_usd=0.0)


async def test_artifacts_of_a_child_are_its_parents_under_names_that_tell_their_content() -> None:
    parent, content = run_at(PARENT), b"one line"
    told = {"summary": "line", "artifacts": [{"path": "artifacts/line.txt"}, {"path": "artifacts/gone.txt"}]}
    child = child_of(parent) >> plans() >> returns(output=told) >> done()
    async with agent(parent, child) as made:
        made.artifacts.contents[child.state.run_id, "artifacts/line.txt"] = content
        await made.children.settle(child.state)
        (result,) = made.results
    digest = hashlib.sha256(content).hexdigest()
    name = f"artifacts/line-relayed-{digest[:16]}.txt"
    assert made.artifacts.contents[parent.state.run_id, name] == content
    assert digest_in_name(name.removeprefix("artifacts/")) == digest[:16]
    assert result.result is not None
    (brought,) = result.result.model_dump()["artifacts"]
    assert (brought["path"], brought["sha256"]) == (name, digest)


# Results that say little


@pytest.mark.parametrize("odd", [{"task": "A B", "round": "x"}, {"task": "a", "round": 0}, {"status": "so-so"}])
async def test_a_result_that_cannot_be_read_ends_the_wait_for_the_task_that_its_key_names(odd: dict[str, Any]) -> None:
    payload = {"run_id": RUN_ID, "step": 1, "tool": "look", "attempt": 1, "status": "ok", **odd}
    body = {"type": subjects.TOOL_RESULT, "payload": payload, "dedupe_key": keys.result(RUN_ID, 1, 1, "a", 1)}
    arrival = InboundMessage(subject=subjects.TOOL_RESULT, body=json.dumps(body).encode(), place="7")
    async with agent(run_at('run waiting ; continue ["a look", "b look"]')) as made:
        intake = Intake(made.turns, cast("Any", None), AgentSettings(), IncomingMetrics(Instruments()))
        with pytest.raises(InvalidMessage, match="not a valid agentic"):
            await intake.receive(arrival)
        state = await made.turns.state(RUN_ID)
    assert state
    assert [(one.task, one.retry_at is not None) for one in state.pendings] == [("a", True), ("b", False)]
