"""What calls of plugins and jobs are like, on the fake and on a real Ductile: so the fake is what it stands for."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.ductile.calling import attempts, awaited, called, client, finished, logged
from tests.ductile.under_test import DuctileUnderTest


def test_health_needs_no_token_and_counts_what_is_outstanding(ductile: DuctileUnderTest, tmp_path: Path) -> None:
    called(ductile, do="hold", until=str(tmp_path / "released"))
    health = httpx2.get(f"{ductile.url}/healthz", trust_env=False).json()
    assert (health["status"], health["queue_depth"], health["version"]) == ("ok", 1, "dev")
    (tmp_path / "released").touch()


@pytest.mark.parametrize("path", ["/plugins", "/skills", "/plugin/probe", "/jobs", "/job-logs", "/job/x", "/events"])
def test_each_way_of_lacking_a_token_has_its_own_words(ductile: DuctileUnderTest, path: str) -> None:
    words = {
        None: "missing or invalid Authorization header",
        "bearer gateway": "invalid Authorization header format",
        "Bearer nonsense": "invalid token",
    }
    for presented, error in words.items():
        headers = {"Authorization": presented} if presented else {}
        answer = httpx2.get(ductile.url + path, headers=headers, trust_env=False)
        assert (answer.status_code, answer.json()) == (401, {"error": error})


def test_what_a_token_may_not_do_is_forbidden(measured: DuctileUnderTest) -> None:
    def code(token: str, method: str, path: str) -> int:
        with client(measured, token) as http:
            return http.request(method, path).status_code

    assert [code("nobody", "GET", path) for path in ("/skills", "/plugins", "/plugin/probe", "/jobs")] == [
        200,
        200,
        403,
        403,
    ]
    assert [code("reader", "POST", f"/plugin/probe/{name}") for name in ("look", "note", "handle")] == [202, 403, 403]
    assert [code("caller", "GET", path) for path in ("/job/x", "/job-logs", "/events")] == [403, 403, 403]
    assert code("reader", "POST", "/pipeline/probe-asked") == 403
    assert code("gateway", "GET", "/job/x") == 404


def test_a_route_that_is_none_and_a_wrong_method_are_told_apart(ductile: DuctileUnderTest) -> None:
    with client(ductile) as http:
        unknown, wrong = http.get("/nothing"), http.get("/plugin/probe/note")
    assert (unknown.status_code, unknown.text.strip()) == (404, "404 page not found")
    assert (wrong.status_code, wrong.content, wrong.headers["Allow"]) == (405, b"", "POST")


def test_the_catalog_names_commands_with_their_tier_and_schemas_stand_with_the_plugin(
    ductile: DuctileUnderTest,
) -> None:
    with client(ductile) as http:
        skills = {one["name"]: one for one in http.get("/skills").json()["skills"]}
        plugins = {one["name"]: one for one in http.get("/plugins").json()["plugins"]}
        detail = http.get("/plugin/probe").json()
        missing = http.get("/plugin/nobody")
    assert (skills["plugin.probe.look"]["tier"], skills["plugin.probe.note"]["tier"]) == ("READ", "WRITE")
    assert skills["plugin.probe.look"].keys() == {
        "name",
        "kind",
        "description",
        "endpoint",
        "tier",
        "plugin",
        "command",
    }
    pipeline = skills["pipeline.probe-asked"]
    assert (pipeline["kind"], pipeline["trigger"], pipeline["execution_mode"]) == ("pipeline", "probe.asked", "async")
    assert plugins["probe"]["commands"] == ["handle", "look", "note"]
    commands = {one["name"]: one for one in detail["commands"]}
    assert commands["look"]["input_schema"]["additionalProperties"] is True
    assert commands["look"].keys() == {"name", "type", "description", "input_schema"}
    compact = commands["handle"]["input_schema"]
    assert compact == {"type": "object", "properties": {"do": {"type": "string"}, "until": {"type": "string"}}}
    assert (missing.status_code, missing.json()) == (404, {"error": "plugin not found"})


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/plugin/nobody/handle", b"{}", "plugin not found"),
        ("/plugin/probe/nothing", b"{}", "command not supported by plugin"),
        ("/plugin/probe/note", b"{no json", "invalid JSON body"),
        ("/plugin/probe/note", b"[]", "invalid JSON body"),
        ("/plugin/probe/handle", b'{"payload": [1]}', "payload must be a JSON object"),
    ],
)
def test_a_call_that_cannot_be_made_is_refused(ductile: DuctileUnderTest, path: str, body: bytes, error: str) -> None:
    with client(ductile) as http:
        answer = http.post(path, content=body)
    assert (answer.status_code, answer.json()) == (400, {"error": error})


def test_the_same_call_twice_is_two_jobs_whatever_key_comes_with_it(ductile: DuctileUnderTest) -> None:
    body = {"payload": {"n": 1}, "dedupe_key": "k", "idempotency_key": "k"}
    with client(ductile) as http:
        answers = [http.post("/plugin/probe/note", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    ids = {answer.json()["job_id"] for answer in answers}
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json().keys() == {"job_id", "status", "plugin", "command"}
    assert {finished(ductile, job_id)["status"] for job_id in ids} == {"succeeded"}
    assert sorted(one.job_id for one in ductile.executions) == sorted(ids)


def test_a_chunked_body_is_accepted_and_its_payload_is_lost(ductile: DuctileUnderTest) -> None:
    def chunks() -> Iterator[bytes]:
        yield json.dumps({"payload": {"word": "hello"}}).encode()

    with client(ductile) as http:
        answer = http.post("/plugin/probe/note", content=chunks())
    assert answer.status_code == 202
    finished(ductile, answer.json()["job_id"])
    assert [one.payload for one in ductile.executions] == [{}]


@pytest.mark.parametrize(
    ("command", "body"), [("handle", b"null"), ("handle", b'{"payload": null}'), ("note", b'{"payload": [1]}')]
)
def test_a_payload_that_is_none_is_accepted_and_is_empty(ductile: DuctileUnderTest, command: str, body: bytes) -> None:
    with client(ductile) as http:
        answer = http.post(f"/plugin/probe/{command}", content=body)
    assert answer.status_code == 202
    finished(ductile, answer.json()["job_id"])
    assert [one.payload for one in ductile.executions] == [{}]


@pytest.mark.parametrize("command", ["handle", "note"])
def test_what_the_plugin_printed_comes_back_as_it_is(ductile: DuctileUnderTest, command: str) -> None:
    job_id = called(ductile, command, word="Grüße")
    job = finished(ductile, job_id)
    assert job.keys() == {"job_id", "status", "plugin", "command", "result", "started_at", "completed_at"}
    assert job["status"] == "succeeded"
    assert job["result"] == {"status": "ok", "result": "done", "output": {"payload": {"word": "Grüße"}}}
    assert [(one.command, one.payload) for one in ductile.executions] == [(command, {"word": "Grüße"})]


@pytest.mark.parametrize("deed", ["refuse", "quit"])
def test_what_must_not_be_tried_again_fails_at_once_with_what_the_plugin_said(
    ductile: DuctileUnderTest, deed: str
) -> None:
    job_id = called(ductile, do=deed)
    job = finished(ductile, job_id)
    assert (job["status"], job["result"]["error"]) == ("failed", "as you wish")
    assert attempts(ductile, job_id) == [1]
    assert [line["last_error"] for line in logged(ductile, job_id=job_id)] == ["as you wish"]


def test_an_error_is_tried_four_times_and_looks_queued_in_between(ductile: DuctileUnderTest) -> None:
    job_id = called(ductile, do="stumble")
    with client(ductile) as http:

        def seen() -> dict[str, Any]:
            return dict(http.get(f"/job/{job_id}").json())

        between = awaited(seen, lambda job: job["status"] == "queued" and "started_at" in job)
        assert "result" not in between
        assert finished(ductile, job_id)["status"] == "failed"
        (listed,) = http.get("/jobs", params={"status": "error"}).json()["jobs"]
    assert attempts(ductile, job_id) == [1, 2, 3, 4]
    assert listed["attempt"] == 4
    assert [line["log_id"] for line in logged(ductile, job_id=job_id)] == [f"{job_id}-4"]


def test_output_that_is_not_json_leaves_an_empty_200_and_a_line_in_the_log(ductile: DuctileUnderTest) -> None:
    job_id = called(ductile, do="garbage")
    assert finished(ductile, job_id) == {"status": "unreadable"}
    assert attempts(ductile, job_id) == [1, 2, 3, 4]
    with client(ductile) as http:
        assert http.get(f"/job/{job_id}/tree").content == b""
        assert http.get("/job-logs", params={"include_result": "true"}).content == b""
    (line,) = logged(ductile, job_id=job_id)
    assert (line["status"], line["stderr"]) == ("failed", "a word on stderr")
    assert "not valid JSON" in line["last_error"]


def test_more_than_ten_mebibytes_of_output_fail_and_cannot_be_read(ductile: DuctileUnderTest) -> None:
    job_id = called(ductile, do="flood")
    assert finished(ductile, job_id) == {"status": "unreadable"}
    (line,) = logged(ductile, job_id=job_id)
    assert (line["status"], line["attempt"]) == ("failed", 4)
    assert line["last_error"] == "plugin spawn failed: plugin stdout exceeded max size 10485760 bytes"


def test_no_output_fails_without_a_result(ductile: DuctileUnderTest) -> None:
    job = finished(ductile, job_id := called(ductile, do="silence"))
    assert job["status"] == "failed"
    assert "result" not in job
    assert logged(ductile, job_id=job_id)[0]["last_error"].endswith("plugin produced no output on stdout")


def test_a_timeout_is_tried_again_and_has_no_result(ductile: DuctileUnderTest) -> None:
    job = finished(ductile, job_id := called(ductile, "handle", do="hang"))
    assert (job["status"], "result" in job) == ("timed_out", False)
    assert attempts(ductile, job_id) == [1, 2, 3, 4]
    assert "timed out" in logged(ductile, job_id=job_id)[0]["last_error"]


def test_the_log_is_searched_in_results_and_errors_but_not_in_payloads(ductile: DuctileUnderTest) -> None:
    shown = called(ductile, call_id="CALL-ONE")
    hidden = called(ductile, do="refuse", call_id="CALL-TWO")
    for job_id in (shown, hidden):
        finished(ductile, job_id)
    assert [line["job_id"] for line in logged(ductile, query="call-one")] == [shown]
    assert [line["job_id"] for line in logged(ductile, query="call_one")] == [shown], "an underscore is a wildcard"
    assert logged(ductile, query="CALL-TWO") == []
    assert [line["job_id"] for line in logged(ductile, query="as you wish")] == [hidden]
    assert "result" not in logged(ductile, job_id=shown)[0]
    (line,) = logged(ductile, job_id=shown, include_result="true")
    assert (line["submitted_by"], line["result"]["status"]) == ("api", "ok")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/jobs?status=skipped", "invalid status filter"),
        ("/jobs?limit=0", "limit must be a positive integer"),
        ("/job-logs?limit=201", "limit must be <= 200"),
        ("/job-logs?status=finished", "invalid status filter"),
    ],
)
def test_lists_refuse_what_they_do_not_know(measured: DuctileUnderTest, path: str, error: str) -> None:
    with client(measured) as http:
        answer = http.get(path)
        assert http.get("/jobs?limit=1000").json() == {"jobs": [], "total": 0}
    assert (answer.status_code, answer.json()) == (400, {"error": error})


def test_what_a_job_emits_starts_the_pipelines_that_listen_and_stands_in_its_tree(ductile: DuctileUnderTest) -> None:
    job_id = called(ductile, do="emit", emitted={"word": "hello"})
    assert finished(ductile, job_id)["status"] == "succeeded"
    with client(ductile) as http:
        root, child = http.get(f"/job/{job_id}/tree").json()
        assert (root["job_id"], child["parent_job_id"], child["command"]) == (job_id, job_id, "handle")
        assert http.get("/job/unknown/tree").json() == []
    finished(ductile, child["job_id"])
    assert ductile.executions[-1].payload["word"] == "hello"
    assert logged(ductile, job_id=child["job_id"])[0]["submitted_by"] == "route"


def test_a_pipeline_called_by_name_runs_its_first_step(ductile: DuctileUnderTest) -> None:
    with client(ductile) as http:
        answer = http.post("/pipeline/probe-asked", json={"payload": {"word": "hello"}})
        missing = http.post("/pipeline/none")
    assert (answer.status_code, answer.json()["plugin"], answer.json()["command"]) == (202, "pipeline", "probe-asked")
    assert finished(ductile, answer.json()["job_id"])["status"] == "succeeded"
    assert (missing.status_code, missing.json()) == (404, {"error": "pipeline not found"})


def test_a_synchronous_pipeline_answers_200_even_when_it_failed(ductile: DuctileUnderTest) -> None:
    with client(ductile) as http:
        answer = http.post("/pipeline/probe-waited-for", json={"payload": {"do": "refuse"}})
    assert (answer.status_code, answer.json()["status"]) == (200, "failed")
    assert answer.json()["result"]["error"] == "as you wish"


def test_the_eleventh_that_waits_gets_503_and_its_job_runs_all_the_same(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    payload = {"do": "hold", "until": str(tmp_path / "released")}
    with client(ductile) as http, ThreadPoolExecutor(11) as callers:
        waiting = [
            callers.submit(http.post, "/pipeline/probe-waited-for", json={"payload": payload}) for _ in range(11)
        ]
        awaited(lambda: [one for one in waiting if one.done()], bool)
        (tmp_path / "released").touch()
        codes = sorted(one.result().status_code for one in waiting)
    assert codes == [200] * 10 + [503]
    awaited(lambda: len(ductile.executions), lambda count: count == 11)
