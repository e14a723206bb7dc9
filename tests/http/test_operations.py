"""The table of operations: a row and a method of its name make an operation."""

import pytest
from pydantic import BaseModel

from agent_service.admission.callers import ApiSettings
from agent_service.api.http import create_app
from agent_service.api.micro import serve_on_bus
from agent_service.api.requests import Caller, Nothing
from agent_service.settings import AgentSettings
from agentic_client import AsyncClient, NotAllowed
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.telemetry.metrics import Instruments
from schemas.operations import OPERATIONS, Operation, endpoint_subjects
from tests.http.house import House, known_token, secret, serving
from tests.kit.pages import as_table
from tests.kit.runs import run_id

GREET = Operation(
    name="greet",
    method="POST",
    path="/v1/runs/{run_id}/greet",
    does="greets a run",
    tag="runs",
    scope="control",
    endpoint="greet",
    roles=("publisher",),
    status=202,
)
TABLE = (*OPERATIONS, GREET)


class GreetRequest(Nothing):
    """A greeting."""

    name: str


class Greeting(BaseModel):
    """It is greeted."""

    said: str


class Greeter:
    async def greet(self, caller: Caller, run_id: str, request: GreetRequest) -> Greeting:
        """Politely."""
        return Greeting(said=f"{request.name} of {caller.transport} greets {run_id}")


async def test_an_operation_that_is_added_in_one_place_is_everywhere(
    house: House, link: NatsLink, nats_server: EmbeddedNats
) -> None:
    settings = AgentSettings(http=ApiSettings(tokens=(known_token("admin"), known_token("reader"))))
    services, at, body = (*house.services, Greeter()), {"run_id": run_id(1)}, {"name": "ann"}
    service = await serve_on_bus(link, services, TABLE)
    async with serving(create_app(services, settings, Instruments(), operations=TABLE)) as port:
        url = f"http://127.0.0.1:{port}"
        async with AsyncClient(url, token=secret("admin")) as client, AsyncClient(nats_server.url) as on_bus:
            assert await client.ask(GREET, at, body) == {"said": f"ann of http greets {run_id(1)}"}
            assert await on_bus.ask(GREET, at, body) == {"said": f"ann of nats greets {run_id(1)}"}
            document = await client.ask("openapi")
        async with AsyncClient(url, token=secret("reader")) as reader:
            with pytest.raises(NotAllowed):
                await reader.ask(GREET, at, body)
    told = document["paths"][GREET.path]["post"]
    assert (told["summary"], told["description"], told["security"]) == (
        "Greets a run",
        "Politely.",
        [{"token": ["control"]}],
    )
    assert {"202", "404", "409", "410", "422"} <= told["responses"].keys()
    assert document["components"]["schemas"]["GreetRequest"]["required"] == ["name"]
    assert "| `POST /v1/runs/{run_id}/greet` | `control` | greets a run |" in as_table(TABLE)
    assert endpoint_subjects("publisher", TABLE)[-1] == "agentic-loop.greet"
    await service.stop()


def test_an_operation_that_nothing_serves_is_told_at_the_start(house: House) -> None:
    with pytest.raises(LookupError, match="greet"):
        create_app(house.services, AgentSettings(), Instruments(), operations=TABLE)
