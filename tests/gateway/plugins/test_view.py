"""A view of the files of one's own, as somebody who is not root has it."""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from groundwork.service import store_folder

ROOT = Path(__file__).parents[3]
PYTHON = Path("/usr/bin/python3")
NOBODY = 65534
LOOK = """
import os, sys
sys.path.append({root!r})
from groundwork.service import process
from ductile_gateway.plugins.box import view
process.hide_memory()
folder, secret, out = sys.argv[1:]
os.makedirs(folder + "/work")
try:
    view.enter(read=[], write=[folder + "/work", out, "/dev/null"], frozen=[], closed=[folder, secret], room_mb=1)
except OSError as error:
    print("refused:", error)
    sys.exit()
process.drop_capabilities()
print(os.getuid(), os.path.exists(secret + "/key"), os.listdir(folder), os.path.exists("/dev/tty"))
open("/dev/null", "w").write("x")
for path in (folder + "/work/a", out + "/a", folder + "/a", secret + "/a"):
    try:
        open(path, "w")
        print("changed")
    except OSError as error:
        print(error.strerror)
"""


CLOSE = """
import os, sys
sys.path.append({root!r})
from ductile_gateway.plugins.box import view
folder, secret = sys.argv[1:]
for number in range(60):
    if os.fork() == 0:
        view.enter(read=[], write=[], frozen=[], closed=[folder, secret], room_mb=1)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_a_file_that_is_just_being_replaced_is_closed_and_keeps_nobody_from_starting(tmp_path: Path) -> None:
    secret, folder, over = tmp_path / "secret", tmp_path / "folders", threading.Event()
    folder.mkdir()
    secret.touch()

    def replace() -> None:
        while not over.is_set():
            store_folder.write(secret, "x")

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        command = [sys.executable, "-c", CLOSE.format(root=str(ROOT)), str(folder), str(secret)]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
    finally:
        over.set()
        replacing.join()


@pytest.mark.skipif(os.getuid() != 0 or not PYTHON.exists(), reason="needs root, to be nobody, and a Python for all")
def test_without_root_what_is_closed_is_not_there_and_only_what_is_named_can_be_changed() -> None:
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place, name) for name in ("folder", "secret", "out")]
        for folder in folders:
            folder.mkdir()
        (folders[1] / "key").write_text("x")
        for path in (Path(place), *folders):
            os.chown(path, NOBODY, NOBODY)
        seen = _as_nobody(*map(str, folders))
        left = sorted(str(path.relative_to(place)) for path in Path(place).rglob("a"))
    if seen[0].startswith("refused"):
        pytest.skip(f"no user namespaces here: {seen[0]}")
    assert seen[0] == f"{NOBODY} False ['work'] False"
    assert left == ["folder/work/a", "out/a"]


def _as_nobody(*arguments: str) -> list[str]:
    command = [str(PYTHON), "-c", LOOK.format(root=str(ROOT)), *arguments]
    told = subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=False
    )
    if "ModuleNotFoundError" in told.stderr:
        pytest.skip("nobody may read this checkout")
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()
