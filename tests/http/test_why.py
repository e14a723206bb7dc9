"""Why a run stands where it stands, asked of everybody who may know, within a bound."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from agent_service.api.handlers.inspection import Finder, WhyCalls
from agent_service.telling.answers.why import Whereabouts, WhyView
from groundwork.service.errors import TryAgain
from schemas import keys, subjects
from schemas.catalog import Catalog
from schemas.status import Finding, GatewayStatus, WaitingCall
from tests.http.house import House
from tests.http.operators import Nowhere, no_gateway
from tests.kit.runs import NOON, run_id, whole_run

RUN = run_id(1)
STATUS = GatewayStatus(
    version="1",
    findings=(Finding(name="gateway", mark="ok", text="here"),),
    waiting=(WaitingCall(run_id=RUN, step=1, tool="search", attempt=1, since=NOON, why="Ductile is away"),),
    executor="ductile-gateway",
)


class Remembered:
    """A bus that was asked. Fills the port Finder."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def of(self, stream: str, subject: str, key: str, since: datetime) -> Whereabouts | None:
        del since
        self.asked.append((stream, subject, key))
        return None


class Away:
    async def of(self, stream: str, subject: str, key: str, since: datetime) -> Whereabouts | None:
        del stream, subject, key, since
        raise TryAgain("not connected to NATS")


class Nobody:
    """Fills Skills."""

    async def catalog(self) -> Catalog:
        raise TryAgain("no executor tells its tools")

    def present(self) -> frozenset[str]:
        return frozenset({"ductile-gateway"})


async def ready() -> Mapping[str, str]:
    return {"bus": ""}


async def asked_of(
    house: House, finder: Finder, gateway: Callable[[], Awaitable[GatewayStatus | None]] = no_gateway
) -> WhyView:
    calls = WhyCalls(house.store, house.store.inbox, finder, house.letters, Nobody(), gateway, ready)
    calls.within_s = 0.2
    return await calls.show_why(RUN)


async def test_the_bus_is_asked_for_the_request_and_the_result_of_the_attempt_that_is_waited_for(house: House) -> None:
    await house.play(whole_run(1)[:4])
    finder = Remembered()
    await asked_of(house, finder)
    assert sorted(finder.asked) == [
        (subjects.STREAM_REQUESTS, subjects.tool_request("web-search"), keys.request(RUN, 1, 1)),
        (subjects.STREAM_RESULTS, subjects.TOOL_RESULT, keys.result(RUN, 1, 1)),
    ]


async def test_only_the_dead_letters_of_the_run_are_told(house: House) -> None:
    await house.play(whole_run(1)[:4])
    for run in (RUN, run_id(2)):
        house.letters.put(b"{}", subject=subjects.TOOL_RESULT, run_id=run, Reason=f"of {run}")
    view = await asked_of(house, Nowhere())
    assert [fact.text for fact in view.facts if fact.what == "dead letter"] == [f"1, of agentic.tool_result: of {RUN}"]
