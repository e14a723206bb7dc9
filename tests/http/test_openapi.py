"""The OpenAPI document is valid and complete, and generated clients can call the agent."""

import json
from pathlib import Path

import httpx2
import jsonschema_rs
import pytest

from agent_service.api.errors import MEDIA_TYPE, Code
from agent_service.api.openapi import Json
from tests.http.house import House
from tests.kit.pages import ROOT, as_table
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
