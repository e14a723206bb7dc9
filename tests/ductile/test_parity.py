"""The fake answers as a real Ductile (version M) does. There is no newer version to compare with."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

from ductile_gateway.ductile.api import signed_headers
from ductile_gateway.ductile.settings import RelayPeerSettings
from tests.ductile.fake import FakeDuctile
from tests.ductile.real import RealDuctile, real_ductile
from tests.ductile.under_test import DuctileUnderTest, called, client, finished
from tests.kit.waiting import wait_until

pytestmark = real_ductile

Seen = TypeVar("Seen")
Both = Callable[[Callable[[DuctileUnderTest], Seen]], Seen]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both[Any]]:
    """Runs a function on the fake and a real Ductile, and returns its result, which must be the same."""
    with ExitStack() as held:
        real = held.enter_context(RealDuctile(tmp_path_factory.mktemp("ductile")))
        fake = held.enter_context(FakeDuctile())
        threads = held.enter_context(ThreadPoolExecutor(2))

        def of_both(deed: Callable[[DuctileUnderTest], Any]) -> Any:
            of_fake, of_real = threads.map(deed, (fake, real))
            assert of_fake == of_real
            return of_real

        yield of_both


def envelope(kind: str = "probe.asked", /, *, key: str | None = None, **payload: Any) -> dict[str, Any]:
    return {"event": {"type": kind, "payload": payload} | ({"dedupe_key": key} if key else {})}


def relayed(ductile: DuctileUnderTest, event: Mapping[str, Any], changed: Mapping[str, str] = {}) -> httpx2.Response:
    body, ours = json.dumps(event).encode(), RelayPeerSettings.model_validate(ductile.peer.settings())
    headers = {**signed_headers(ours, body), **changed}
    return httpx2.post(ductile.url + ductile.peer.path, content=body, headers=headers, trust_env=False)


def answered(answer: httpx2.Response) -> tuple[int, Any]:
    """The status, and the part of the body that is the same in any Ductile: an error, or the names of the fields."""
    if "json" not in answer.headers.get("Content-Type", "") or not answer.content:
        return answer.status_code, answer.text.strip()
    body = answer.json()
    return answer.status_code, body if "error" in body else sorted(body)


REQUESTS = [
    *(("gateway", "GET", path, b"") for path in ("/skills", "/plugin/probe", "/plugin/nobody")),
    *(("gateway", "GET", path, b"") for path in ("/nothing", "/job/x", "/job/x/tree", "/jobs?limit=1", "/job-logs")),
    *(("nobody", "GET", path, b"") for path in ("/skills", "/plugin/probe", "/jobs")),
    *(("caller", "GET", path, b"") for path in ("/job/x", "/job-logs", "/events")),
    *(("reader", "POST", f"/plugin/probe/{name}", b"{}") for name in ("look", "note", "handle")),
    ("reader", "POST", "/pipeline/probe-asked", b"{}"),
    ("gateway", "POST", "/pipeline/none", b"{}"),
    ("gateway", "POST", "/plugin/nobody/handle", b"{}"),
    ("gateway", "POST", "/plugin/probe/nothing", b"{}"),
]


@pytest.mark.parametrize(("token", "method", "path", "body"), REQUESTS)
def test_each_request_has_the_same_answer(both: Both[Any], token: str, method: str, path: str, body: bytes) -> None:
    def ask(ductile: DuctileUnderTest) -> Any:
        with client(ductile, token) as http:
            return answered(http.request(method, path, content=body or None))

    both(ask)


def attempts(ductile: DuctileUnderTest, job_id: str) -> list[int]:
    return [one.attempt for one in ductile.executions if one.job_id == job_id]


REASONS = (
    *("as you wish", "not valid JSON", "plugin produced no output on stdout", "timed out"),
    *("plugin spawn failed: plugin stdout exceeded max size 10485760 bytes", "max attempts (4) reached"),
)


def ending(ductile: DuctileUnderTest, job_id: str) -> dict[str, Any]:
    """All that is visible of an ended job, without names and times."""
    job = finished(ductile, job_id)
    ran = [(one.command, one.payload, one.attempt) for one in ductile.executions if one.job_id == job_id]
    told = ("status", "attempt", "submitted_by", "stderr")
    with client(ductile) as http:
        lines = http.get("/job-logs", params={"job_id": job_id}).json()["logs"]
        tree = http.get(f"/job/{job_id}/tree").content
    return {
        "fields": sorted(job),
        "job": (job["status"], job.get("result")),
        "ran": ran,
        "log": [{name: line.get(name) for name in told} | {"fields": sorted(line)} for line in lines],
        "why": [[reason for reason in REASONS if reason in (line.get("last_error") or "")] for line in lines],
        "tree": [one["status"] for one in json.loads(tree)] if tree else None,
    }


@pytest.mark.parametrize("deed", ["answer", "refuse", "quit", "stumble", "silence", "garbage", "flood", "hang"])
def test_each_deed_of_a_plugin_ends_alike_in_job_log_and_tree(both: Both[Any], deed: str) -> None:
    # Only `handle` has a time limit that a test can wait for.
    seen = both(lambda ductile: ending(ductile, called(ductile, "handle" if deed == "hang" else "note", do=deed)))
    assert [attempt for *_, attempt in seen["ran"]] == ([1] if deed in ("answer", "refuse", "quit") else [1, 2, 3, 4])


FORGED = {"X-Ductile-Signature": "00" * 32}


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        (envelope("probe.unheard"), {}),
        (envelope("probe.other"), {}),
        (envelope(word="x" * 300_000), {}),
        (envelope(word="x" * 300_000), FORGED),
        (envelope("probe.other"), FORGED),
        (envelope(), {"X-Ductile-Peer": "someone-else", "X-Ductile-Key-Id": "v2"}),
        (envelope(), FORGED | {"X-Ductile-Key-Id": "v2"}),
    ],
    ids=["unheard", "not accepted", "too large", "too large and forged", "forged", "peer", "key"],
)
def test_of_the_flaws_of_an_event_the_first_is_named(
    both: Both[Any], event: dict[str, Any], changed: dict[str, str]
) -> None:
    both(lambda ductile: answered(relayed(ductile, event, changed)))


def test_an_event_that_comes_again_is_run_again_unless_its_job_succeeded(both: Both[Any], tmp_path: Path) -> None:
    def send(ductile: DuctileUnderTest) -> Any:
        def job(event: dict[str, Any], *, ended: bool = True) -> str:
            job_id = str(relayed(ductile, event).json()["job_id"])
            if ended:
                finished(ductile, job_id)
            return job_id

        by_origin = envelope() | {"origin": {"instance": ductile.peer.name, "event_id": "e-1"}}
        refused, held = (
            envelope(key="f", do="refuse"),
            envelope(key="h", do="hold", until=str(tmp_path / ductile.url[-4:])),
        )
        found: dict[str, Any] = {
            "succeeded": job(envelope(key="k")) == job(envelope(key=" k ")),
            "named by its origin": job(by_origin) == job(by_origin),
            "failed": job(refused) == job(refused),
            "runs": (first := job(held, ended=False)) == (second := job(held, ended=False)),
        }
        (tmp_path / ductile.url[-4:]).touch()
        found["in turn"] = [finished(ductile, one)["status"] for one in (first, second)]
        return found

    assert both(send) == {
        "succeeded": True,
        "named by its origin": True,
        "failed": False,
        "runs": False,
        "in turn": ["succeeded", "succeeded"],
    }


def test_killed_it_runs_the_same_job_again_and_gives_it_up_after_the_fourth_time(
    both: Both[Any], tmp_path: Path
) -> None:
    def killed(ductile: DuctileUnderTest) -> Any:
        ids = []
        gate = tmp_path / ductile.url[-4:]
        for kills in (1, 4):
            ids.append(job_id := called(ductile, "note", do="hold", until=str(gate)))
            for runs in range(1, kills + 1):
                until = [*range(1, runs + 1)]
                wait_until(lambda job_id=job_id, until=until: attempts(ductile, job_id) == until)  # type: ignore[misc]
                ductile.kill()
                with pytest.raises(httpx2.ConnectError):
                    httpx2.get(f"{ductile.url}/healthz", trust_env=False)
                ductile.start()
            gate.touch()
            finished(ductile, job_id)
            gate.unlink()
        seen = [ending(ductile, job_id) for job_id in ids]
        return [(one["job"][0], [run[-1] for run in one["ran"]], one["why"], one["log"]) for one in seen]

    once, dead = both(killed)
    assert once[:2] == ("succeeded", [1, 2])
    assert dead[:2] == ("dead", [1, 2, 3, 4])
