"""Files over HTTP: a run's own plain files and the page's, and nothing else of the disk; and runs that are gone."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.api.page import FOLDER, TYPES
from agent_service.archive.retention import Over
from agent_service.core.waiting import FINAL
from agent_service.telling.folder.workspace import MAX_BYTES
from tests.http import wire
from tests.http.house import House
from tests.kit.runs import accepted, returned, run_id, started, whole_run

RUN, OTHER = run_id(1), run_id(2)
FILES = {
    "plan.md": b"# Plan\n<script>alert(1)</script>\n",
    "artifacts/page.html": b"<img src=x onerror=alert(1)>",
    "artifacts/a.json": b"{}",
    "artifacts/huge.bin": b"",
}


@pytest.fixture
async def folder(house: House, tmp_path: Path) -> Path:
    """The folder of run 1, with a plan and artifacts; run 2 goes on, and has a secret."""
    await house.play(whole_run(1))
    await house.play([accepted(2), started(accepted(2))])
    assert not house.workspace.write([(RUN, FILES), (OTHER, {"memory.md": b"secret"})])
    return tmp_path / "workspaces" / RUN


async def code(client: httpx2.AsyncClient, path: str) -> tuple[int, str]:
    answer = await client.get(f"/v1/runs/{RUN}/workspace/{path}")
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.usefixtures("folder")
async def test_files_are_listed_with_sizes_and_hashes(client: httpx2.AsyncClient) -> None:
    listed = (await client.get(f"/v1/runs/{RUN}/workspace")).json()
    assert {file["path"]: (file["size"], file["sha256"]) for file in listed["files"]} == {
        path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in FILES.items()
    }


@pytest.mark.usefixtures("folder")
async def test_a_file_is_a_download_that_no_browser_shows(client: httpx2.AsyncClient) -> None:
    kinds = {
        "plan.md": "text/markdown; charset=utf-8",
        "artifacts/a.json": "application/json",
        "artifacts/page.html": "application/octet-stream",
    }
    for path, kind in kinds.items():
        answer = await client.get(f"/v1/runs/{RUN}/workspace/{path}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
        assert answer.headers["content-disposition"] == f'attachment; filename="{Path(path).name}"'
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


PATHS_OF_NO_FILE = [
    f"../{OTHER}/memory.md", f"..%2f{OTHER}%2fmemory.md", f"%2e%2e/{OTHER}/memory.md",
    f"artifacts/../../{OTHER}/memory.md", "artifacts/../../../../../../etc/passwd", "/etc/passwd", "%2fetc%2fpasswd",
    "..", ".", "./plan.md", "plan.md/", "plan.md%00.txt", "plan.md%0a", "PLAN.md", "plan.md.", "artifacts",
    "artifacts/", "artifacts/.hidden", "artifacts/-rf", "artifacts/" + "x" * 300, "artifacts/a/b",
    "artifacts%5ca.json", ".staging/0", "store/runs.db", "missing.md", "",
]  # fmt: skip


@pytest.mark.usefixtures("folder")
async def test_there_is_nothing_beside_the_files_of_the_run(port: int) -> None:
    for path in PATHS_OF_NO_FILE:
        answer = await wire.get(port, f"/v1/runs/{RUN}/workspace/{path}")
        assert (answer.status, "secret" in answer.text) == (404, False), path


TRAPS: dict[str, Callable[[Path, Path], object]] = {
    "a link out": lambda trap, outside: trap.symlink_to(outside),
    "a link within": lambda trap, _: trap.symlink_to(trap.parent.parent / "plan.md"),
    "a hard link": lambda trap, outside: trap.hardlink_to(outside),
    "a pipe": lambda trap, _: os.mkfifo(trap),
    "another folder": lambda trap, _: trap.mkdir(),
}


@pytest.mark.parametrize("put", TRAPS.values(), ids=TRAPS)
async def test_only_plain_files_are_sent(
    client: httpx2.AsyncClient, folder: Path, tmp_path: Path, put: Callable[[Path, Path], object]
) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    put(folder / "artifacts" / "trap.txt", tmp_path / "outside.txt")
    assert (await code(client, "artifacts/trap.txt"))[0] == 404
    listed = (await client.get(f"/v1/runs/{RUN}/workspace")).json()
    assert listed["foreign"] == ["artifacts/trap.txt"]


async def test_a_file_too_large_to_be_sent_is_not_read(client: httpx2.AsyncClient, folder: Path) -> None:
    os.truncate(folder / "artifacts" / "huge.bin", MAX_BYTES + 1)
    assert await code(client, "artifacts/huge.bin") == (409, "too_large_to_send")


async def test_an_artifact_can_be_had_with_the_entry_that_names_it_and_only_as_it_was_recorded(
    client: httpx2.AsyncClient, house: House
) -> None:
    path, content = "artifacts/report.md", b"# Report"
    asked = whole_run(1)[:4]
    brought = returned(asked[-1], artifacts=[{"path": path, "sha256": hashlib.sha256(content).hexdigest()}])
    run = await house.play([*asked, brought])
    house.shelf.contents[path] = content
    assert (await client.get(f"/v1/runs/{run}/workspace/{path}")).content == content
    house.shelf.contents[path] = b"# Forged"
    assert await code(client, path) == (409, "artifact_changed")


PAGE = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.suffix in TYPES)
POLICY = {
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob:", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
    "trusted-types 'none'",
}  # fmt: skip


async def test_every_file_of_the_page_is_open_under_a_policy_that_lets_nothing_in_and_no_other_is(
    house: House,
) -> None:
    async with house.client(None) as client:
        for path in ("/", *(f"/page/{name}" for name in PAGE)):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
            assert set(answer.headers["content-security-policy"].split("; ")) == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
        for path in ("", "none.js", "../page.py", "..%2fpage.py", "%2e%2e/page.py", "/app.js"):
            assert (await client.get(f"/page/{path}")).status_code == 404, path


def test_the_modules_of_the_page_make_no_markup_of_strings_and_name_no_other_place() -> None:
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function")
    for name in PAGE:
        content = (FOLDER / name).read_text(encoding="utf-8")
        assert [word for word in forbidden if word in content] == [], name
        assert not [word for word in content.split() if word.startswith(("from'http", 'src="http', 'href="http'))]


RULE, OF_CANCELLED = "agent.keep_runs.done_days: 1", "agent.keep_runs.cancelled_days: 1"
READ = ("", "/entries", "/events", "/workspace", "/workspace/plan.md", "/timeline", "/steps/1", "/calls/1", "/why")
SAID: dict[str, Any] = {
    "/cancel": {},
    "/dismiss": {},
    "/signals": {"signal_id": "s1", "kind": "message", "message": "hello"},
    "/answers": {"answer": "yes"},
    "/approvals": {"decision": "approve", "arguments_hash": "0" * 32},
}


async def two_days_later(house: House, run: str = RUN) -> None:
    """When all is done that the run asked for."""
    house.store.told(run, house.store.version(run))
    house.store._write_told()
    await house.store._database.write(lambda _: None)
    house.clock.advance(2 * 86400)


async def prune(client: httpx2.AsyncClient, house: House, run: str = RUN) -> dict[str, int]:
    """How many runs went by which rule, two days later."""
    await two_days_later(house, run)
    answer = await client.post("/v1/prune", json={})
    assert answer.status_code == 200, answer.text
    told: dict[str, int] = answer.json()["runs"]
    return told


@pytest.mark.usefixtures("folder")
async def test_a_run_whose_time_is_over_goes_with_its_folder_and_every_path_of_it_says_so(
    client: httpx2.AsyncClient, house: House
) -> None:
    assert await prune(client, house) == {RULE: 1}
    assert house.workspace.files(RUN) is None
    for path in (*READ, *SAID):
        answer = await client.request("POST" if path in SAID else "GET", f"/v1/runs/{RUN}{path}", json=SAID.get(path))
        told = answer.json()
        assert (answer.status_code, told["code"], told["run_id"]) == (410, "gone", RUN), answer.text
        assert (told["gone"]["rule"], told["gone"]["status"], told["gone"]["wake_id"]) == (RULE, "done", "wake-1")
        assert RULE in told["detail"]
        assert told["gone"]["gone_at"][:19] in told["detail"].replace("Z", "")
    assert await prune(client, house) == {}
    assert [run["run_id"] for run in (await client.get("/v1/runs")).json()["runs"]] == [OTHER]
    assert (await client.get(f"/v1/runs/{OTHER}")).json()["state"] == "running"


@pytest.mark.usefixtures("folder")
async def test_an_artifact_that_is_kept_no_longer_says_so_and_the_rest_of_its_run_is_there(
    client: httpx2.AsyncClient, house: House
) -> None:
    await two_days_later(house)
    now, artifact = house.clock.now(), f"/v1/runs/{RUN}/workspace/artifacts/report.md"
    (run,) = await house.store.forgetting.ended(Over(statuses=FINAL, before=now, escalated_before=now), None, 1)
    assert (await client.get(artifact)).json()["code"] == "no_such_file"
    await house.store.forgetting.forget_artifacts([run], "agent.keep_runs.artifacts_days: 1", now)
    told = (await client.get(artifact)).json()
    assert (told["status"], told["code"], told["run_id"]) == (410, "artifacts_gone", RUN)
    assert "agent.keep_runs.artifacts_days: 1" in told["detail"]
    assert (await client.get(f"/v1/runs/{RUN}/workspace/plan.md")).status_code == 200
    assert (await client.get(f"/v1/runs/{RUN}/workspace/nothing.md")).json()["code"] == "no_such_file"


async def test_a_wake_of_a_run_that_is_gone_is_answered_with_its_id_however_long_is_waited(
    client: httpx2.AsyncClient, house: House
) -> None:
    asked = {"wake_id": "again", "goal": "look"}
    first = (await client.post("/v1/wake", json=asked)).json()["run_id"]
    await client.post(f"/v1/runs/{first}/cancel", json={})
    assert await prune(client, house, first) == {OF_CANCELLED: 1}
    assert (await client.post("/v1/wake?wait=5", json=asked)).json()["run_id"] == first
    assert (await client.post("/v1/wake", json={**asked, "goal": "another"})).status_code == 409
