"""The workspace on a real file system: whole files or none, legal names only, no link, pipe or mount followed."""

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_service.views.workspace.files import IllegalName, Unsafe, Workspace, checked
from tests.projections.fakes import OTHER, RUN, SECRET, names


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


# Attacks: names that lead elsewhere, and what is no plain file in the place of one

HOSTILE_PATHS = [
    "", ".", "..", "/", "../x", "a/../../x", "/etc/passwd", "artifacts", "artifacts/", "artifacts/..", "artifacts/.",
    "artifacts/../../../etc/passwd", "artifacts/../plan.md", "artifacts//a.txt", "artifacts/a/b", "./plan.md",
    "plan.md/", "PLAN.MD", "plan.md\n", "artifacts/a.txt\n", "artifacts/a\0b", "plan.md\0", "artifacts/.hidden",
    "artifacts/-rf", "artifacts/a b", "artifacts/a\u202eb", "artifacts/\u00e9", "artifacts/" + "a" * 101,
    "artifacts/a\x1b[31m", "artifacts\\a.txt", f"../{OTHER}/plan.md", f"{OTHER}/plan.md", ".staging/0", "%2e%2e/x",
    "/proc/self/environ", "artifacts/~", "\ud800",
]  # fmt: skip


@pytest.mark.usefixtures("folder")
def test_a_path_that_is_no_file_of_a_run_is_refused_for_reading_and_writing(workspace: Workspace, root: Path) -> None:
    before = names(root)
    for path in HOSTILE_PATHS:
        with pytest.raises(IllegalName):
            workspace.read(RUN, path)
        with pytest.raises(IllegalName):
            workspace.write(RUN, {"memory.md": b"x", path: b"x"})
        assert names(root) == before, path


HOSTILE_RUNS = [
    "", ".", "..", "run_", "../run_01JD7Z0000000000000000000A", ".staging", "run_01JD7Z0000000000000000000A/",
    "run_01jd7z0000000000000000000a", "run_01JD7Z0000000000000000000U", "run_01JD7Z0000000000000000000A\n", "R1",
    "run_01JD7Z0000000000000000000AA", "run_01JD7Z000000000000000000\0A", "/etc", "run_../../../../../../etc/passwd",
]  # fmt: skip


@pytest.mark.usefixtures("folder")
def test_a_run_id_that_is_none_of_ours_has_no_folder(workspace: Workspace) -> None:
    for run_id in HOSTILE_RUNS:
        with pytest.raises(IllegalName):
            workspace.read(run_id, "plan.md")
        with pytest.raises(IllegalName):
            workspace.files(run_id)
        with pytest.raises(IllegalName):
            workspace.remove(run_id)
        with pytest.raises(IllegalName):
            workspace.write(run_id, {"plan.md": b"x"})
    assert checked(RUN) == RUN


Attack = Callable[[Path, Path], object]


def a_socket(at: Path, _: Path) -> None:
    with contextlib.chdir(at.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(at.name)  # the path of a socket is at most 108 bytes long


ATTACKS: dict[str, Attack] = {
    "a symbolic link": lambda at, secret: at.symlink_to(secret),
    "a hard link": lambda at, secret: at.hardlink_to(secret),
    "a pipe": lambda at, _: os.mkfifo(at),
    "a socket": a_socket,
    "a link into proc": lambda at, _: at.symlink_to("/proc/self/environ"),
    "a link to zeros": lambda at, _: at.symlink_to("/dev/zero"),
    "a folder": lambda at, _: at.mkdir(),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("path", ["plan.md", "artifacts/a.txt"])
def test_what_is_no_plain_file_is_neither_read_nor_listed(
    attack: Attack, path: str, folder: Path, workspace: Workspace, secret: Path
) -> None:
    (folder / path).unlink()
    attack(folder / path, secret)
    with pytest.raises(Unsafe):
        workspace.read(RUN, path)
    listing = workspace.files(RUN)
    assert listing is not None
    assert path in listing.foreign
    assert path not in [file.path for file in listing.files]
    if not (folder / path).is_dir():
        workspace.write(RUN, {path: b"new"})
        assert workspace.read(RUN, path) == b"new"
    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize("place", [RUN, f"{RUN}/artifacts"])
@pytest.mark.usefixtures("folder")
def test_a_link_in_a_folders_place_is_not_followed(
    place: str, workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "plan.md").write_bytes(SECRET)
    (outside / "a.txt").write_bytes(SECRET)
    subprocess.run(["rm", "-r", root / place], check=True)
    (root / place).symlink_to(outside)
    with pytest.raises(Unsafe):
        workspace.read(RUN, "artifacts/a.txt")
    with pytest.raises(Unsafe):
        workspace.write(RUN, {"artifacts/a.txt": b"x", "artifacts/b.txt": b"x"})
    assert names(outside) == ["a.txt", "plan.md"]
    assert (outside / "a.txt").read_bytes() == SECRET


@pytest.mark.usefixtures("folder")
def test_a_link_in_the_place_of_the_staging_folder_stops_all_writing(
    workspace: Workspace, root: Path, tmp_path: Path, secret: Path
) -> None:
    (root / ".staging").rmdir()
    (root / ".staging").symlink_to(tmp_path)
    with pytest.raises(Unsafe):
        workspace.write(RUN, {"plan.md": b"x"})
    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_file_swapped_for_a_link_again_and_again_never_lets_a_secret_out(
    link: Attack, folder: Path, workspace: Workspace, secret: Path
) -> None:
    over = threading.Event()

    def keep_swapping() -> None:
        while not over.is_set():
            link(folder / "link", secret)
            (folder / "link").rename(folder / "plan.md")
            (folder / "plan.md").unlink()
            (folder / "plain").write_bytes(b"old")
            (folder / "plain").rename(folder / "plan.md")

    swapper = threading.Thread(target=keep_swapping)
    swapper.start()
    seen: set[bytes | type[Unsafe] | None] = set()
    try:
        for _ in range(5_000):
            try:
                seen.add(workspace.read(RUN, "plan.md"))
            except Unsafe:
                seen.add(Unsafe)
    finally:
        over.set()
        swapper.join()
    assert seen <= {b"old", None, Unsafe}
    assert workspace.read(RUN, "plan.md") == b"old", "the last swap left a plain file"


def test_removing_a_run_leaves_what_its_links_point_to(folder: Path, workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(SECRET)
    (folder / "artifacts" / "link").symlink_to(outside)
    workspace.remove(RUN)
    workspace.remove(RUN)
    assert not folder.exists()
    assert names(outside) == ["kept"]


def test_files_are_read_in_an_overlay_whose_layers_are_on_two_disks(tmp_path: Path, small_disk: Path) -> None:
    layers = [small_disk / "upper", small_disk / "work", tmp_path / "lower", tmp_path / "overlay"]
    for folder in layers:
        folder.mkdir()
    upper, work, lower, overlay = layers
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    if subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", overlay], check=False).returncode:
        pytest.skip("mounting an overlay needs root")
    try:
        workspace = Workspace(overlay / "workspaces")
        workspace.write(RUN, {"plan.md": b"a plan\n"})
        assert workspace.read(RUN, "plan.md") == b"a plan\n"
    finally:
        subprocess.run(["umount", "-l", overlay], check=True)


def test_a_mount_in_a_files_place_is_refused(folder: Path, workspace: Workspace, small_disk: Path) -> None:
    source = small_disk / "other"
    source.write_bytes(SECRET)
    if subprocess.run(["mount", "--bind", source, folder / "plan.md"], check=False).returncode:
        pytest.skip("mounting a file needs root")
    try:
        with pytest.raises(Unsafe):
            workspace.read(RUN, "plan.md")
    finally:
        subprocess.run(["umount", "-l", folder / "plan.md"], check=True)
