"""Results by somebody who was not asked, and knows everything of a run but what its request was proved with.

The unprotected twin is a tool of RFC-103's plain shape, on the same agent.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from schemas import keys
from tests.attacks.doors import HttpDoor
from tests.attacks.kit import attack
from tests.attacks.results import NOW, Publisher, publishing
from tests.attacks.stand import TOKENS, Stand


@pytest.fixture(scope="session")
def known() -> set[str]:
    return set()


@pytest.fixture
async def target(side: str, stand: Stand, known: set[str]) -> AsyncIterator[Publisher]:
    """Whatever was done to one run, the next one is answered by who was asked."""
    protected = side == "ours"
    door = HttpDoor(url=stand.api, protected=protected, token=TOKENS["operator"])
    async with publishing(stand.bus, door, protected=protected, known=known) as publisher:
        yield publisher
    assert stand.living(), "this took a service down, or made it say that it is not ready"


@pytest.mark.parametrize("side", ["ours"])
async def test_who_was_asked_is_believed(target: Publisher) -> None:
    assert await target.goes_on_with_its_own(await target.waits())


MADE_UP: list[Any] = ["made.up", "", None, 7, [], {}, "x" * 10_000, "k1.\n", "ü"]


@attack(50, 98)
async def test_a_result_of_the_pending_step(target: Publisher) -> bool:
    run = await target.waits()
    return await target.changes(run, run.result())


@attack(98)
@pytest.mark.parametrize("capability", MADE_UP, ids=lambda capability: repr(capability)[:12])
async def test_a_result_with_a_capability_that_is_made_up(target: Publisher, capability: object) -> bool:
    run = await target.waits()
    if not target.protected and capability not in ("made.up", None):
        capability = ...
    return await target.changes(run, run.result(capability=capability))


@attack(98)
async def test_a_result_with_the_capability_of_a_run_of_ones_own(target: Publisher) -> bool:
    mine, run = await target.waits(), await target.waits()
    return await target.changes(run, run.result(capability=mine.capability))


@attack(98, twin=False)
@pytest.mark.parametrize("change", [str.upper, str.lower, lambda text: text[:-1], lambda text: text + "A"])
async def test_the_right_capability_but_for_a_letter(target: Publisher, change: Any) -> bool:
    run = await target.waits()
    changed = change(run.capability)
    return changed != run.capability and await target.changes(run, run.result(capability=changed))


@attack(50, 98)
async def test_a_step_of_the_future_ends_the_run(target: Publisher) -> bool:
    run = await target.waits()
    return await target.changes(run, run.result(step=999))


@attack(50, 98)
async def test_another_tool_ends_the_run(target: Publisher) -> bool:
    run = await target.waits()
    return await target.changes(run, run.result(tool="open-too"))


@attack(50, 98)
async def test_a_failure_ends_the_step(target: Publisher) -> bool:
    run = await target.waits()
    error = {"class": "not_allowed", "message": "no", "retryable": False}
    return await target.changes(run, run.result(status="error", result=..., error=error))


@attack(98)
async def test_the_result_in_its_envelope_under_its_own_key(target: Publisher) -> bool:
    run = await target.waits()
    key = keys.result(run.id, 1, 1)
    message = {"type": "agentic.tool_result", "payload": run.result(attempt=1), "dedupe_key": key}
    return await target.changes(run, message, msg_id=key)


@attack(99, twin=False)
async def test_the_place_of_the_honest_answer_is_taken(target: Publisher) -> bool:
    run = await target.waits()
    for number in range(1, 4):
        key = keys.result(run.id, 1, 1) + (f"#{number}" if number > 1 else "")
        await target.says({"type": "agentic.tool_result", "payload": {}, "dedupe_key": key}, msg_id=key)
    await target.says(run.result(completed_at=NOW), msg_id=keys.completed(run.id))
    return not await target.goes_on_with_its_own(run)
