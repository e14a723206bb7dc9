"""Files over HTTP: plain files of the run and of the page, nothing else of the disk; and deleted runs."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.api.http import FOLDER
from agent_service.archive.pruning import delete_runs, expired_runs
from agent_service.core.waiting import FINAL
from agent_service.run.journal import Entry
from agent_service.views.workspace.files import MAX_BYTES
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
    """The folder of run 1, with a plan and artifacts; run 2 is live and has a secret."""
    await house.play(whole_run(1))
    await house.play([accepted(2), started(accepted(2))])
    house.workspace.write(RUN, FILES)
    house.workspace.write(OTHER, {"memory.md": b"secret"})
    return tmp_path / "workspaces" / RUN


async def code(client: httpx2.AsyncClient, path: str) -> tuple[int, str]:
    answer = await client.get(f"/v1/runs/{RUN}/workspace/{path}")
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_file_is_a_download_that_no_browser_shows(client: httpx2.AsyncClient, folder: Path) -> None:
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
    os.truncate(folder / "artifacts" / "huge.bin", MAX_BYTES + 1)
    assert await code(client, "artifacts/huge.bin") == (409, "too_large_to_send"), "it is not even read"


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
    house.workspace.remove_artifacts(run)
    assert await code(client, path) == (409, "artifact_changed")


PAGE = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())
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
        for path in ("", "none.js", "../page.py", "..%2fpage.py", "%2e%2e/page.py"):
            assert (await client.get(f"/page/{path}")).status_code == 404, path


def test_the_modules_of_the_page_make_no_markup_of_strings_and_name_no_other_place() -> None:
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function")
    for name in PAGE:
        content = (FOLDER / name).read_text(encoding="utf-8")
        assert [word for word in forbidden if word in content] == [], name
        assert not [word for word in content.split() if word.startswith(("from'http", 'src="http', 'href="http'))]


RULE = "agent.keep_runs.done_days: 1"
READ = ("", "/entries", "/events", "/workspace", "/workspace/plan.md", "/timeline", "/steps/1", "/calls/1", "/why")
SAID: dict[str, Any] = {
    "/cancel": {},
    "/dismiss": {},
    "/signals": {"signal_id": "s1", "kind": "message", "message": "hello"},
    "/answers": {"answer": "yes"},
    "/approvals": {"decision": "approve", "arguments_hash": "0" * 32},
}


@pytest.mark.usefixtures("folder")
async def test_a_run_whose_time_is_over_goes_with_its_folder_and_every_path_of_it_says_so(
    client: httpx2.AsyncClient, house: House
) -> None:
    await house.two_days_later(RUN)
    assert (await client.post("/v1/prune", json={})).json()["runs"] == {RULE: 1}
    assert house.workspace.files(RUN) is None
    for path in (*READ, *SAID):
        answer = await client.request("POST" if path in SAID else "GET", f"/v1/runs/{RUN}{path}", json=SAID.get(path))
        told = answer.json()
        assert (answer.status_code, told["code"], told["run_id"]) == (410, "gone", RUN), answer.text
        assert (told["gone"]["rule"], told["gone"]["status"], told["gone"]["wake_id"]) == (RULE, "done", "wake-1")
        assert RULE in told["detail"]
        assert told["gone"]["gone_at"][:19] in told["detail"].replace("Z", "")
    assert (await client.post("/v1/prune", json={})).json()["runs"] == {}
    assert [run["run_id"] for run in (await client.get("/v1/runs")).json()["runs"]] == [OTHER]
    assert (await client.get(f"/v1/runs/{OTHER}")).json()["state"] == "running"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("path", ["", "/timeline", "/steps/1", "/calls/1", "/workspace", "/workspace/plan.md"])
async def test_a_run_that_is_deleted_while_it_is_read_is_gone_and_no_empty_one(
    client: httpx2.AsyncClient, house: House, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    await house.two_days_later(RUN)
    now, entries = house.clock.now(), house.store.entries

    async def deleted_before(*asked: Any, **which: Any) -> Sequence[Entry]:
        async for ended in expired_runs(house.store, FINAL, now, now):
            await delete_runs(house.store, ended, RULE, now)
        return await entries(*asked, **which)

    monkeypatch.setattr(house.store, "entries", deleted_before)
    answer = await client.get(f"/v1/runs/{RUN}{path}")
    assert answer.json()["code"] in ("gone", "try_again"), answer.text
    assert (await client.get(f"/v1/runs/{RUN}{path}")).json()["code"] == "gone"


@pytest.mark.usefixtures("folder")
async def test_an_artifact_that_is_kept_no_longer_says_so_and_the_rest_of_its_run_is_there(
    client: httpx2.AsyncClient, house: House
) -> None:
    await house.two_days_later(RUN)
    now, artifact = house.clock.now(), f"/v1/runs/{RUN}/workspace/artifacts/report.md"
    run, *_ = await anext(aiter(expired_runs(house.store, FINAL, now, now)))
    assert (await client.get(artifact)).json()["code"] == "no_such_file"
    await delete_runs(house.store, [run], "agent.keep_runs.artifacts_days: 1", now, artifacts_only=True)
    told = (await client.get(artifact)).json()
    assert (told["status"], told["code"], told["run_id"]) == (410, "artifacts_gone", RUN)
    assert "agent.keep_runs.artifacts_days: 1" in told["detail"]
    assert (await client.get(f"/v1/runs/{RUN}/workspace/plan.md")).status_code == 200
    for asked, refused in {RUN: "no_such_file", run_id(9): "unknown_run"}.items():
        assert (await client.get(f"/v1/runs/{asked}/workspace/nothing.md")).json()["code"] == refused
