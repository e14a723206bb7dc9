"""What a crash of Ductile does to its jobs, on the fake and on a real Ductile."""

from pathlib import Path

import httpx2
import pytest

from tests.ductile.calling import attempts, awaited, called, client, finished, logged
from tests.ductile.under_test import DuctileUnderTest


def test_what_ran_when_it_was_killed_runs_again_as_the_same_job(ductile: DuctileUnderTest, tmp_path: Path) -> None:
    job_id = called(ductile, do="hold", until=str(tmp_path / "released"))
    awaited(lambda: len(ductile.executions), lambda count: count == 1)
    ductile.kill()
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{ductile.url}/healthz", trust_env=False)
    ductile.start()
    awaited(lambda: attempts(ductile, job_id), lambda found: found == [1, 2])
    (tmp_path / "released").touch()
    assert finished(ductile, job_id)["status"] == "succeeded"
    assert logged(ductile, job_id=job_id)[0]["attempt"] == 2


def test_what_was_killed_four_times_is_dead(ductile: DuctileUnderTest, tmp_path: Path) -> None:
    job_id = called(ductile, do="hold", until=str(tmp_path / "released"))
    for runs in range(1, 5):
        awaited(lambda: len(ductile.executions), runs.__eq__)
        ductile.kill()
        ductile.start()
    job = finished(ductile, job_id)
    (tmp_path / "released").touch()
    assert (job["status"], "result" in job, "completed_at" in job) == ("dead", False, True)
    assert attempts(ductile, job_id) == [1, 2, 3, 4]
    with client(ductile) as http:
        (listed,) = http.get("/jobs", params={"status": "dead"}).json()["jobs"]
    (line,) = logged(ductile, job_id=job_id)
    assert (listed["attempt"], line["attempt"]) == (5, 5), "one more than ever ran"
    assert line["last_error"] == "Job marked dead during crash recovery: max attempts (4) reached"
