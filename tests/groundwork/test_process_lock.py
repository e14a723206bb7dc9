"""The process lock: one process per folder, told by pid, and free again however that process ends."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from groundwork.service.store_folder import AlreadyRunning, ProcessLock

PROJECT = Path(__file__).parents[2]

HOLD = """
import sys
from pathlib import Path
from groundwork.service.store_folder import ProcessLock
with ProcessLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the folder until its input ends."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_process_learns_who_holds_which_file_and_what_to_do(
    tmp_path: Path, holder: subprocess.Popen[bytes]
) -> None:
    with pytest.raises(AlreadyRunning, match=f"locked by process {holder.pid}: .*Stop process {holder.pid}") as caught:
        ProcessLock(tmp_path).__enter__()
    assert str(tmp_path / "process.lock") in str(caught.value)
    assert caught.value.pid == holder.pid


def test_kill_9_frees_the_folder(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    holder.wait()
    (tmp_path / "process.lock").write_text("a longer text than any pid\n")
    with ProcessLock(tmp_path):
        assert (tmp_path / "process.lock").read_text() == f"{os.getpid()}\n"
