"""Results that name no task: one whose dedupe key does is placed by it, and one without either by its tool."""

import json
from typing import Any

import pytest

from agent_service.run.arrival import Arrival, correlation
from schemas import keys, subjects
from schemas.events import Envelope, ToolRequest
from tests.shell.courses import COURSES, begun, check
from tests.shell.world import Delivery, World


class Plain:
    """A gateway in the form of RFC-103: its results name run, step and tool, and `keyed` ones have the dedupe key.

    `times`: how often each is delivered, one after the other.
    """

    def __init__(self, world: World, *, keyed: bool, times: int) -> None:
        self._right, self._bus, self._keyed, self._times = world.gateway, world.bus, keyed, times
        self.executed = world.gateway.executed

    def handle(self, delivery: Delivery) -> None:
        request = Envelope[ToolRequest].model_validate_json(delivery.body).payload
        self._right.handle(delivery)
        key = keys.result(request.run_id, request.step, request.attempt, request.task, request.round)
        told = self._bus.published.pop(key)
        self._bus.unacknowledged.remove(told)
        self._bus.put(subjects.TOOL_RESULT, self._plain(json.loads(told.body)), key)
        self._bus.unacknowledged += [self._bus.published[key]] * (self._times - 1)

    def _plain(self, message: dict[str, Any]) -> bytes:
        named = {"attempt", "task", "round"}
        message["payload"] = {name: value for name, value in message["payload"].items() if name not in named}
        return json.dumps(message if self._keyed else {**message, "dedupe_key": None}).encode()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("name", "keyed"), [("three rounds", True), ("three rounds", False), ("six tasks", True)])
async def test_an_executor_that_knows_of_no_tasks_is_understood_also_when_it_is_heard_twice(
    name: str, keyed: bool, times: int
) -> None:
    world = begun(COURSES[name])
    world.gateway = Plain(world, keyed=keyed, times=times)  # type: ignore[assignment]
    await world.until_ended()
    await check(world, COURSES[name])


@pytest.mark.parametrize("odd", [{"task": "A B", "round": "x"}, {"task": "a", "round": 0}, {"status": "so-so"}])
def test_a_result_that_cannot_be_read_relates_to_the_task_that_its_key_names(odd: dict[str, Any]) -> None:
    about = correlation(_brought(odd, keys.result("r", 1, 1, "a", 2)))
    assert about is not None
    assert (about.task, about.round) == ("a", 2)


def _brought(odd: dict[str, Any], key: str | None) -> Arrival:
    payload = {"run_id": "r", "step": 1, "tool": "look", "status": "ok", **odd}
    body = json.dumps({"type": subjects.TOOL_RESULT, "payload": payload, "dedupe_key": key}).encode()
    return Arrival(subject=subjects.TOOL_RESULT, body=body, place="7")
