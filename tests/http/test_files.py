"""The workspace over HTTP: lists and downloads of a run's own plain files, and nothing else of the disk."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from agent_service.telling.folder.workspace import MAX_BYTES
from tests.http import raw
from tests.http.house import House
from tests.kit.runs import returned, run_id, whole_run

RUN, OTHER = run_id(1), run_id(2)
PLAN = b"# Plan\n<script>alert(1)</script>\n"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "outside.txt"
    file.write_text("secret")
    return file


@pytest.fixture
async def folder(house: House, tmp_path: Path) -> Path:
    """The folder of run 1, with a plan and an artifact; run 2 has a secret."""
    for number in (1, 2):
        await house.play(whole_run(number))
    failed = house.workspace.write(
        [
            (
                RUN,
                {
                    "plan.md": PLAN,
                    "artifacts/page.html": b"<img src=x onerror=alert(1)>",
                    "artifacts/a.json": b"{}",
                    "artifacts/huge.bin": b"",
                },
            ),
            (OTHER, {"memory.md": b"secret"}),
        ]
    )
    assert not failed
    return tmp_path / "workspaces" / RUN


@pytest.mark.usefixtures("folder")
async def test_files_are_listed_with_sizes_and_hashes(client: httpx2.AsyncClient) -> None:
    listed = (await client.get(f"/v1/runs/{RUN}/workspace")).json()
    found = {file["path"]: (file["size"], file["sha256"]) for file in listed["files"]}
    assert found["plan.md"] == (len(PLAN), hashlib.sha256(PLAN).hexdigest())
    assert found.keys() == {"plan.md", "artifacts/page.html", "artifacts/a.json", "artifacts/huge.bin"}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("plan.md", "text/markdown; charset=utf-8"),
        ("artifacts/a.json", "application/json"),
        ("artifacts/page.html", "application/octet-stream"),
    ],
)
@pytest.mark.usefixtures("folder")
async def test_a_file_is_a_download_that_no_browser_shows(client: httpx2.AsyncClient, path: str, kind: str) -> None:
    answer = await client.get(f"/v1/runs/{RUN}/workspace/{path}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == kind
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


@pytest.mark.parametrize("path", PATHS_OF_NO_FILE)
@pytest.mark.usefixtures("folder")
async def test_there_is_nothing_beside_the_files_of_the_run(port: int, path: str) -> None:
    answer = await raw.get(port, f"/v1/runs/{RUN}/workspace/{path}")
    assert answer.status == 404
    assert "secret" not in answer.text


def link_out(trap: Path, outside: Path) -> None:
    trap.symlink_to(outside)


def link_within(trap: Path, _: Path) -> None:
    trap.symlink_to(trap.parent.parent / "plan.md")


def hard_link(trap: Path, outside: Path) -> None:
    trap.hardlink_to(outside)


def pipe(trap: Path, _: Path) -> None:
    os.mkfifo(trap)


def another_folder(trap: Path, _: Path) -> None:
    trap.mkdir()


@pytest.mark.parametrize("put", [link_out, link_within, hard_link, pipe, another_folder])
async def test_only_plain_files_are_sent(
    client: httpx2.AsyncClient, folder: Path, secret_file: Path, put: Callable[[Path, Path], None]
) -> None:
    put(folder / "artifacts" / "trap.txt", secret_file)
    answer = await client.get(f"/v1/runs/{RUN}/workspace/artifacts/trap.txt")
    assert answer.status_code == 404
    listed = (await client.get(f"/v1/runs/{RUN}/workspace")).json()
    assert listed["foreign"] == ["artifacts/trap.txt"]


async def test_a_file_too_large_to_be_sent_is_not_read(client: httpx2.AsyncClient, folder: Path) -> None:
    os.truncate(folder / "artifacts" / "huge.bin", MAX_BYTES + 1)
    answer = await client.get(f"/v1/runs/{RUN}/workspace/artifacts/huge.bin")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "too_large_to_send")


async def test_an_artifact_can_be_had_with_the_entry_that_names_it_and_only_as_it_was_recorded(
    client: httpx2.AsyncClient, house: House
) -> None:
    path, content = "artifacts/report.md", b"# Report"
    asked = whole_run(3)[:4]
    brought = returned(asked[-1], artifacts=[{"path": path, "sha256": hashlib.sha256(content).hexdigest()}])
    run = await house.play([*asked, brought])
    house.shelf.contents[path] = content
    assert (await client.get(f"/v1/runs/{run}/workspace/{path}")).content == content
    house.shelf.contents[path] = b"# Forged"
    answer = await client.get(f"/v1/runs/{run}/workspace/{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "artifact_changed")
