"""The tool inside the gateway's own process: what benchmarks are made of."""

from typing import Any

from ductile_gateway.calls.call import ToolOutcome
from ductile_gateway.plugins.in_process import InProcessTools
from schemas.continuation import Retrieve
from tests.gateway.probe_calls import probe

WANTED = {"action": "retrieve", "query": "more"}


async def answered(**payload: Any) -> ToolOutcome:
    outcome = await InProcessTools().run(probe("handle", **payload))
    assert isinstance(outcome, ToolOutcome)
    return outcome


async def test_it_asks_once_for_what_it_is_told_to_ask_for() -> None:
    first = await answered(continuation=WANTED)
    assert (first.status, first.continuation) == ("continuation", Retrieve(action="retrieve", query="more"))
    assert (await answered(continuation=WANTED, evidence=[])).status == "ok"
