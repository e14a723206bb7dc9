"""The workspace on a real file system: whole files or none, legal names only, no link followed."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_service.views.workspace.files import Workspace
from tests.projections.fakes import OTHER, RUN, names


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes into folders of others")
def test_what_root_writes_is_the_agents(root: Path, workspace: Workspace) -> None:
    root.mkdir()
    os.chown(root, 12345, 12346)
    workspace.write(RUN, {"plan.md": b"plan", "artifacts/report.md": b"report"})
    assert {(made.stat().st_uid, made.stat().st_gid) for made in root.rglob("*")} == {(12345, 12346)}


def test_a_file_is_replaced_and_never_written_into(folder: Path, workspace: Workspace) -> None:
    with (folder / "plan.md").open("rb") as reader:
        workspace.write(RUN, {"plan.md": b"new"})
        assert reader.read() == b"old"
    assert workspace.read(RUN, "plan.md") == b"new"


def test_a_list_has_paths_sizes_and_hashes_in_order_and_names_what_is_no_file_of_ours(
    folder: Path, workspace: Workspace, secret: Path
) -> None:
    (folder / "notes.txt").write_text("by hand")
    (folder / "artifacts" / ".hidden").write_text("x")
    (folder / "memory.md").symlink_to(secret)
    (folder / "artifacts" / "new\nline\x1b\udcff").write_text("x")
    listing = workspace.files(RUN)
    assert listing is not None
    assert [(file.path, file.size, file.sha256) for file in listing.files] == [
        ("artifacts/a.txt", 1, hashlib.sha256(b"a").hexdigest()),
        ("plan.md", 3, hashlib.sha256(b"old").hexdigest()),
    ]
    foreign = ["artifacts/.hidden", "artifacts/new line␛⟨U+DCFF⟩", "memory.md", "notes.txt"]
    assert sorted(listing.foreign) == foreign


def test_two_writers_at_once_leave_whole_files(root: Path) -> None:
    contents = [b"a" * 50_000, b"b" * 60_000]

    def write(content: bytes) -> None:
        for _ in range(30):
            Workspace(root).write(RUN, {"plan.md": content, "memory.md": content})

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert Workspace(root).read(RUN, "plan.md") in [None, *contents]
    for writer in writers:
        writer.join()
    assert Workspace(root).read(RUN, "plan.md") in contents
    assert names(root) == [f"{RUN}/memory.md", f"{RUN}/plan.md"]


CRASH = """
import os, signal, sys
from pathlib import Path
from agent_service.views.workspace.files import Workspace

class Files(dict):
    def items(self):
        yield from super().items()
        os.kill(os.getpid(), signal.SIGKILL)

Workspace(Path(sys.argv[1])).write(sys.argv[2], Files({"plan.md": b"new", "memory.md": b"new"}))
"""


def test_a_crash_before_the_rename_leaves_the_old_content_or_no_folder_and_the_next_write_sweeps_up(
    folder: Path, workspace: Workspace, root: Path
) -> None:
    subprocess.run([sys.executable, "-c", CRASH, root, OTHER], check=False)
    assert workspace.files(OTHER) is None
    crashed = subprocess.run([sys.executable, "-c", CRASH, root, RUN], check=False)
    assert crashed.returncode == -signal.SIGKILL
    assert names(folder) == ["artifacts/a.txt", "plan.md"]
    assert workspace.read(RUN, "plan.md") == b"old"
    assert names(root / ".staging") == ["0", "1"]
    workspace.write(RUN, {"plan.md": b"newest"})
    assert workspace.read(RUN, "plan.md") == b"newest"
    assert names(root / ".staging") == []


def test_a_full_disk_leaves_every_old_file_whole_and_writes_again_once_there_is_room(small_disk: Path) -> None:
    workspace = Workspace(small_disk / "workspaces")
    workspace.write(RUN, {"plan.md": b"old", "memory.md": b"old"})
    hog = small_disk / "hog"
    hog.write_bytes(b"x" * 150_000)
    with pytest.raises(OSError, match="No space left"):
        workspace.write(RUN, {"plan.md": b"new", "memory.md": b"m" * 200_000})
    assert workspace.read(RUN, "plan.md") == b"old"
    assert workspace.read(RUN, "memory.md") == b"old"
    hog.unlink()
    workspace.write(RUN, {"plan.md": b"new"})
    assert workspace.read(RUN, "plan.md") == b"new"
    assert names(small_disk / "workspaces" / ".staging") == []
