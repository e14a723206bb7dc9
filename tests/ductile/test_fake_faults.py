"""What only the fake can do: faults at the moment they are wanted, outcomes of Ductile's own, and the newer version."""

import json
import threading
from typing import Any

import httpx2
import pytest

from tests.ductile.calling import awaited, called, client, envelope, finished, logged, relayed, signed
from tests.ductile.fake import (
    Behaviour,
    FakeDuctile,
    answers,
    dies,
    fails,
    held,
    in_turn,
    skipped,
    succeeds_but_routing_fails,
)

SEARCH = {
    "name": "search",
    "version": "1",
    "protocol": 2,
    "commands": [{"name": "find", "type": "read", "input_schema": {"word": "string"}}],
}


def posted(ductile: FakeDuctile, **options: Any) -> httpx2.Response:
    with client(ductile) as http:
        return http.post("/plugin/probe/note", json={"payload": {"n": 1}}, **options)


def test_a_plugin_of_a_test_does_what_the_test_says(fake: FakeDuctile) -> None:
    fake.plugin(SEARCH)
    fake.on("search", "find", in_turn(fails("not yet"), answers("found it", output={"at": 7})))
    with client(fake) as http:
        job_id = http.post("/plugin/search/find", json={"payload": {"word": "tea"}}).json()["job_id"]
    job = finished(fake, job_id)
    assert (job["status"], job["result"]["output"]) == ("succeeded", {"at": 7})
    assert [(one.plugin, one.payload, one.attempt) for one in fake.executions] == [
        ("search", {"word": "tea"}, 1),
        ("search", {"word": "tea"}, 2),
    ]


@pytest.mark.parametrize(
    ("behaviour", "status", "result"),
    [
        (succeeds_but_routing_fails(), "failed", {"status": "ok", "result": "done"}),
        (skipped("if"), "skipped", {"status": "skipped", "reason": "if"}),
        (dies(), "dead", None),
    ],
)
def test_ends_that_no_plugin_can_bring_about_are_final(
    fake: FakeDuctile, behaviour: Behaviour, status: str, result: dict[str, Any] | None
) -> None:
    fake.on("probe", "note", behaviour)
    job = finished(fake, called(fake))
    assert (job["status"], job.get("result")) == (status, result)
    assert len(fake.executions) == 1


def test_a_pruned_job_is_gone_but_for_the_log(fake: FakeDuctile) -> None:
    job_id = called(fake, call_id="c-1")
    finished(fake, job_id)
    fake.prune(job_id)
    with client(fake) as http:
        assert http.get(f"/job/{job_id}").status_code == 404
        assert http.get(f"/job/{job_id}/tree").json() == []
        assert http.get("/jobs").json()["total"] == 0
    assert [line["status"] for line in logged(fake, query="c-1")] == ["succeeded"]


def test_a_lost_202_leaves_a_job_that_runs(fake: FakeDuctile) -> None:
    fake.faults.lost_202 = 1
    with pytest.raises(httpx2.TransportError):
        posted(fake)
    assert posted(fake).status_code == 202
    awaited(lambda: len(fake.executions), lambda count: count == 2)


def test_a_503_may_leave_a_job_that_runs(fake: FakeDuctile) -> None:
    fake.faults.unavailable_after_enqueueing = 1
    assert [posted(fake).status_code for _ in range(2)] == [503, 202]
    awaited(lambda: len(fake.executions), lambda count: count == 2)


def test_a_reset_connection_leaves_nothing_behind(fake: FakeDuctile) -> None:
    fake.faults.reset = True
    with pytest.raises(httpx2.TransportError):
        posted(fake)
    fake.faults.reset = False
    with client(fake) as http:
        assert http.get("/jobs").json()["total"] == 0


@pytest.mark.parametrize("fault", ["half_open", "slow_seconds"])
def test_an_answer_that_does_not_come_is_a_timeout(fake: FakeDuctile, fault: str) -> None:
    setattr(fake.faults, fault, 1.0)
    with pytest.raises(httpx2.TimeoutException):
        posted(fake, timeout=0.1)
    fake.faults.half_open, fake.faults.slow_seconds = False, 0.0
    assert posted(fake).status_code == 202


def test_a_stream_that_is_cut_ends_without_its_last_chunk(fake: FakeDuctile) -> None:
    fake.publish("scheduler.tick", {})
    with client(fake) as http, http.stream("GET", "/events") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "id: 1"
        fake.cut_streams()
        with pytest.raises(httpx2.RemoteProtocolError):
            list(lines)


def test_the_ring_holds_256_events(fake: FakeDuctile) -> None:
    for _ in range(300):
        fake.publish("scheduler.tick", {})
    with client(fake) as http, http.stream("GET", "/events") as answer:
        assert next(answer.iter_lines()) == "id: 45"


def test_a_silent_stream_says_nothing_of_what_happens(fake: FakeDuctile) -> None:
    fake.faults.sse_silent = True
    with client(fake) as http, http.stream("GET", "/events") as answer:
        finished(fake, called(fake))
        fake.cut_streams()
        with pytest.raises(httpx2.RemoteProtocolError):
            next(answer.iter_lines())


def test_a_relayed_event_may_lose_its_answer_too(fake: FakeDuctile) -> None:
    fake.faults.lost_202 = 1
    with pytest.raises(httpx2.TransportError):
        relayed(fake, envelope(key="k"))
    awaited(lambda: len(fake.executions), lambda count: count == 1)


def test_a_pipeline_whose_condition_is_not_met_does_not_listen(fake: FakeDuctile) -> None:
    fake.pipeline("never", on="probe.unheard", plugin="probe", listens=False)
    assert "job_id" not in relayed(fake, envelope("probe.unheard")).json()


def test_the_newer_version_takes_an_event_whose_job_still_runs_for_the_same(newer: FakeDuctile) -> None:
    release = threading.Event()
    newer.on("probe", "handle", held(release, fails(retry=False)))
    first, second = (relayed(newer, envelope(key="k")).json()["job_id"] for _ in range(2))
    assert first == second
    release.set()
    assert finished(newer, first)["status"] == "failed"
    assert relayed(newer, envelope(key="k")).json()["job_id"] != first


def test_in_the_newer_version_reading_the_catalog_and_calling_are_apart(newer: FakeDuctile) -> None:
    with client(newer, "lister") as http:
        assert [http.get(path).status_code for path in ("/skills", "/plugin/probe")] == [200, 200]
        assert http.post("/plugin/probe/look").status_code == 403
    with client(newer, "watcher") as http:
        assert [http.post(f"/plugin/probe/{name}").status_code for name in ("look", "note")] == [202, 403]
        assert http.get("/skills").status_code == 403


def test_the_newer_version_keeps_results_from_those_who_may_only_see_the_status(newer: FakeDuctile) -> None:
    job_id = called(newer, do="refuse")
    finished(newer, job_id)
    with client(newer, "watcher") as http:
        job = http.get(f"/job/{job_id}").json()
        (node,) = http.get(f"/job/{job_id}/tree").json()
        (line,) = http.get("/job-logs", params={"include_result": "true"}).json()["logs"]
    assert job["status"] == node["status"] == line["status"] == "failed"
    assert not {"result", "last_error", "stderr"} & {*job, *node, *line}


def test_the_newer_version_says_how_it_stands_and_lists_no_more_than_200(newer: FakeDuctile) -> None:
    with client(newer) as http:
        assert http.get("/healthz").json()["posture"] == "gateway"
        assert http.get("/jobs?limit=200").status_code == 200
        assert http.get("/jobs?limit=201").status_code == 400


def test_the_signed_text_is_method_path_time_and_body() -> None:
    """The worked example: whoever signs anything else is not understood by a real Ductile either."""
    with FakeDuctile() as ductile:
        body = json.dumps(envelope("probe.unheard")).encode()
        headers = signed(ductile.peer, body)
        path = ductile.url + ductile.peer.path
        accepted = httpx2.post(f"{path}?not=signed", content=body, headers=headers, trust_env=False)
        assert accepted.status_code == 202
        assert httpx2.post(path, content=body + b" ", headers=headers, trust_env=False).status_code == 403
