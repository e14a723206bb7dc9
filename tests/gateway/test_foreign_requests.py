"""Other executors stand on the same bus: the gateway answers what is asked of it, and leaves everything else alone."""

from typing import Any

import pytest

from ductile_gateway.calls.call import Asked
from groundwork.nats.link import NatsLink
from schemas import subjects
from schemas.events import ToolRequest
from tests.gateway.on_nats import a_bus, all_acknowledged, consuming, dead_letters, results, send
from tests.gateway.parts import CATALOG as OURS
from tests.gateway.parts import MemoryLedger, World, a_request, asked_for, offering
from tests.kit.waiting import until

NAME = subjects.SERVICE_GATEWAY


def to(executor: str | None, **changes: Any) -> ToolRequest:
    return a_request(**changes).model_copy(update={"executor": executor})


class Untouched(MemoryLedger):
    async def find(self, key: str) -> Any:
        raise AssertionError(f"the ledger was asked for {key}")


@pytest.mark.parametrize(
    ("request_", "route"),
    [
        (to("another"), "jina-reader"),
        (to("unnamed"), "jina-reader"),
        (to(None, tool="grep"), "shell"),
        (to("another", tool="grep"), "shell"),
        (to(None), "agentic-wake"),
    ],
)
async def test_what_is_asked_of_others_is_acknowledged_and_left_alone(
    link: NatsLink, request_: ToolRequest, route: str
) -> None:
    await a_bus(link)
    await send(link, request_, route)
    async with consuming(link, World(ledger=Untouched()).relay()):
        await until(lambda: all_acknowledged(link))
    assert await results(link) == []
    assert await dead_letters(link) == []


@pytest.mark.parametrize(
    ("request_", "route", "ours"),
    [
        (to(None), "jina-reader", True),
        (to(NAME), "jina-reader", True),
        (to(NAME, tool="grep"), "shell", True),
        (to("another"), "jina-reader", False),
        (to(None, tool="grep"), "shell", False),
    ],
)
def test_it_is_ours_by_our_name_or_without_any_name_by_a_route_of_ours(
    request_: ToolRequest, route: str, ours: bool
) -> None:
    asked: Asked = asked_for(request_, route)
    assert offering(OURS).is_ours(asked) is ours
