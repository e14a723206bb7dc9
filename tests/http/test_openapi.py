"""A row of the table and a method of its name make an operation; the OpenAPI document of all is valid and complete."""

import json
from pathlib import Path

import httpx2
import jsonschema_rs
import pytest
from pydantic import BaseModel

from agent_service.api.errors import MEDIA_TYPE, Code
from agent_service.api.http import create_app
from agent_service.api.micro import serve_on_bus
from agent_service.api.openapi import Json
from agent_service.api.requests import Caller, Nothing
from agent_service.settings import AgentSettings, ApiSettings
from agent_service.workbench.embedded_nats import EmbeddedNats
from agentic_client import AsyncClient, NotAllowed
from groundwork.nats.link import NatsLink
from groundwork.telemetry.metrics import Instruments
from schemas.operations import OPERATIONS, Operation, endpoint_subjects
from tests.http.house import House, known_token, secret, serving
from tests.kit.pages import ROOT, as_table
from tests.kit.runs import run_id
from tests.schemas import samples

UNLISTED = ("/llms.txt", "/docs", "/openapi.json")
OPENAPI = json.loads(Path(__file__).with_name("openapi-3.1.schema.json").read_bytes())
NO_EXAMPLE = {"download_file", "follow_all", "metrics"}
OPERATING = {"stop_all", "go_on", "drain", "prune"}


@pytest.fixture
async def document(client: httpx2.AsyncClient) -> Json:
    told: Json = (await client.get("/openapi.json")).json()
    return told


def calls(document: Json) -> dict[str, Json]:
    """Calls by operation id, which is unique."""
    listed = [call for methods in document["paths"].values() for call in methods.values()]
    named = {call["operationId"]: call for call in listed}
    assert len(named) == len(listed)
    return named


def fits(document: Json, schema: Json) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for({**schema, "components": document["components"]}, validate_formats=True)


async def test_it_is_an_openapi_document_with_every_call_and_every_reference_leads_somewhere(
    document: Json, house: House
) -> None:
    jsonschema_rs.validator_for(OPENAPI).validate(document)
    shown = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert shown == {(m, p.replace(":path", "")) for m, p in house.table() if p not in UNLISTED}
    for reference in samples.refs(document):
        samples.at(document, reference)


async def test_every_refusal_is_described_as_a_problem_with_an_example(document: Json) -> None:
    problems = document["components"]["responses"]
    for name, call in calls(document).items():
        refused = {s: a for s, a in call["responses"].items() if s == "default" or s >= "4"}
        assert "default" in refused, name
        refused.pop("503") if name == "readyz" else None
        assert ("422" in refused) == (name not in ("healthz", "readyz", "metrics")), name
        for status, answer in refused.items():
            kind = problems[answer["$ref"].rpartition("/")[2]]["content"][MEDIA_TYPE]
            fits(document, kind["schema"]).validate(kind["example"])
            assert status in ("default", str(kind["example"]["status"]))


async def test_every_call_that_takes_a_body_describes_it(document: Json) -> None:
    may_be_empty = {"cancel_run", "dismiss_run", "retry_letter", "discard_letter", *OPERATING}
    for path, methods in document["paths"].items():
        for call in [methods["post"]] if "post" in methods else []:
            body = call["requestBody"]
            assert body["content"].keys() == {"application/json"}, path
            assert body["required"] == (call["operationId"] not in may_be_empty)
            assert {"400", "401", "403", "413", "415", "422", "503"} <= call["responses"].keys()


async def test_answers_may_have_fields_that_are_not_known_yet_and_bodies_may_not(document: Json) -> None:
    taken = {"CallerConstraints"}
    for call in calls(document).values():
        for media in call.get("requestBody", {}).get("content", {}).values():
            taken.add(media["schema"]["$ref"].rpartition("/")[2])
    strict = {n for n, one in document["components"]["schemas"].items() if one.get("additionalProperties") is False}
    assert strict == taken


async def test_every_example_fits_what_it_is_an_example_of(document: Json) -> None:
    for name, call in calls(document).items():
        taken = call.get("requestBody", {}).get("content", {})
        assert bool(taken) == any(media.get("examples") for media in taken.values()), name
        examples = [(m["schema"], one["value"]) for m in taken.values() for one in m.get("examples", {}).values()]
        answers = [media for answer in call["responses"].values() for media in answer.get("content", {}).values()]
        examples += [(media["schema"], media["example"]) for media in answers if "example" in media]
        assert any("example" in media for media in answers) == (name not in NO_EXAMPLE), name
        for schema, value in examples:
            fits(document, schema).validate(value)


def test_the_page_lists_every_operation_and_every_code() -> None:
    page = (ROOT / "docs" / "API.md").read_text()
    assert as_table() in page
    assert [code for code in Code if f"`{code}`" not in page] == []


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
