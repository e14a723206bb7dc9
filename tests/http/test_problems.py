"""What is not served is a problem (RFC 9457) that names all that has to change, and can be found in the log."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import agent_service
from agent_service.api.refusals import CODES, MEDIA_TYPE, TITLES
from tests.http.house import House
from tests.kit.runs import run_id

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


@pytest.mark.parametrize("path", ["/v1/wake", f"{UNKNOWN}/cancel", "/v1/stop-all", "/v1/dead-letters/1/retry"])
async def test_a_misspelt_parameter_is_refused_before_anything_is_done(
    client: httpx2.AsyncClient, house: House, path: str
) -> None:
    told = await problem(await client.post(path, params={"wiat": 30}, json={"goal": "x"}))
    assert (told["status"], [error["field"] for error in told["errors"]]) == (422, ["wiat"])
    assert await house.how_many() == 0


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
