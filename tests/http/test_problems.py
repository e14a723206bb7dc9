"""What is not served is a problem (RFC 9457) that names all that has to change, and can be found in the log."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import agent_service
from agent_service.api.problems import CODES, MEDIA_TYPE, TITLES
from agent_service.api.requests import MOST_ERRORS
from tests.http.house import House
from tests.kit.runs import run_id, whole_run

UNKNOWN = f"/v1/runs/{run_id(9)}"


async def problem(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == MEDIA_TYPE
    told: dict[str, Any] = answer.json()
    assert told["status"] == answer.status_code
    return told


async def test_a_refusal_is_a_problem_with_the_error_of_earlier_versions_in_it(client: httpx2.AsyncClient) -> None:
    told = await problem(await client.get(UNKNOWN))
    instance = told.pop("instance")
    assert instance.startswith("urn:uuid:")
    assert told == {
        "type": "/docs#unknown_run",
        "title": "There is no such run",
        "status": 404,
        "detail": "there is no run of this id",
        "code": "unknown_run",
        "errors": [],
        "error": {"code": "unknown_run", "message": "there is no run of this id"},
    }


async def test_every_field_that_has_to_change_is_named(client: httpx2.AsyncClient) -> None:
    body = {"constraints": {"max_loops": 0, "max_loop": 1}, "surprise": 1, "depth": "deep"}
    told = await problem(await client.post("/v1/wake", json=body))
    assert [(error["field"], error["code"]) for error in told["errors"]] == [
        ("goal", "missing"),
        ("constraints.max_loops", "greater_than_equal"),
        ("constraints.max_loop", "extra_forbidden"),
        ("depth", "int_type"),
        ("surprise", "extra_forbidden"),
    ]
    assert all(f"{error['field']}: {error['message']}" in told["detail"] for error in told["errors"])
    assert told["error"]["field"] == "goal"


@pytest.mark.parametrize("name", ["sk-ant-0123456789abcdef", "my secret is blue", "x" * 40, "<script>"])
async def test_a_name_that_could_be_no_field_is_not_repeated(client: httpx2.AsyncClient, name: str) -> None:
    answer = await client.post("/v1/wake", json={"goal": "x", "constraints": {name: 1}, name: 1})
    told = await problem(answer)
    assert [error["field"] for error in told["errors"]] == ["constraints.…", "…"]
    assert name not in answer.text


async def test_of_very_many_fields_the_first_are_named(client: httpx2.AsyncClient) -> None:
    body = {"goal": "x"} | {f"surprise{number}": 1 for number in range(5000)}
    told = await problem(await client.post("/v1/wake", json=body))
    assert len(told["errors"]) == MOST_ERRORS


async def test_parameters_of_a_query_are_named_together(client: httpx2.AsyncClient) -> None:
    told = await problem(await client.get("/v1/runs", params={"limit": "many", "since": "noon", "stat": "done"}))
    assert {error["field"] for error in told["errors"]} == {"limit", "since", "stat"}


async def test_a_form_is_told_in_words(client: httpx2.AsyncClient) -> None:
    lists = await problem(await client.get("/v1/runs", params={"cursor": "x", "before": "x"}))
    wake = await problem(await client.post("/v1/wake", json={"goal": "x", "callback": "ftp://x"}))
    told = {error["field"]: error["message"] for error in (*lists["errors"], *wake["errors"])}
    assert told == {
        "cursor": "must be the `next_cursor` of the page before",
        "before": "must be the id of a run",
        "callback": "must be an address that begins with http:// or https://, without a login",
    }


@pytest.mark.parametrize("path", ["/v1/wake", f"{UNKNOWN}/cancel", "/v1/stop-all", "/v1/dead-letters/1/retry"])
async def test_a_misspelt_parameter_is_refused_before_anything_is_done(
    client: httpx2.AsyncClient, house: House, path: str
) -> None:
    told = await problem(await client.post(path, params={"wiat": 30}, json={"goal": "x"}))
    assert (told["status"], [error["field"] for error in told["errors"]]) == (422, ["wiat"])
    assert await house.how_many() == 0


async def test_of_a_run_that_is_shown_nothing_else_can_be_asked_than_to_wait_for_it(client: httpx2.AsyncClient) -> None:
    told = await problem(await client.get(UNKNOWN, params={"wait": 1, "Wait": 30}))
    assert [(error["field"], error["code"]) for error in told["errors"]] == [("Wait", "extra_forbidden")]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/v1/nothing", 404, "not_found"), ("DELETE", "/v1/runs", 405, "method_not_allowed")],
)
async def test_what_no_call_takes_is_a_problem_too(
    client: httpx2.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    told = await problem(await client.request(method, path))
    assert (told["status"], told["code"]) == (status, code)


@pytest.mark.parametrize(("who", "status"), [("reader", 403), ("stranger", 401)])
async def test_a_refusal_is_found_in_the_log_by_its_instance_with_who_called(
    house: House, caplog: pytest.LogCaptureFixture, who: str, status: int
) -> None:
    caplog.set_level(logging.INFO)
    async with house.client(who) as client:
        told = await problem(await client.post("/v1/wake", json={"goal": "x"}))
    (line,) = [record for record in caplog.records if record.message == "refused"]
    said: dict[str, Any] = vars(line)
    assert (said["status"], said["instance"]) == (status, told["instance"])
    assert said["caller"] == (who if status == 403 else None)


async def test_the_docs_page_has_a_place_for_every_type(client: httpx2.AsyncClient, house: House) -> None:
    await house.play(whole_run())
    page = (await client.get("/docs")).text
    assert [code for code in CODES if f'id="{code}"' not in page] == []
    assert (await client.get(UNKNOWN)).json()["type"] == "/docs#unknown_run"


def test_every_code_has_a_title_and_is_used() -> None:
    assert set(TITLES) == set(CODES)
    assert set(CODES) - set(literals()) == set()


def literals() -> Iterator[str]:
    """Every text in the code of the services' API, but in the list of codes itself."""
    for file in [*Path(*agent_service.__path__).glob("api/*.py"), Path("groundwork/http/bodies.py")]:
        if file.name != "problems.py":
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value
