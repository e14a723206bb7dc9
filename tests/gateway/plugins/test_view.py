"""The view of mounts, and the paths of call records."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ductile_gateway.plugins.call_record import CallRecords
from groundwork.service import store_folder
from tests.gateway.served import ROOT

CLOSE = """
import os, sys
sys.path.append({root!r})
from ductile_gateway.plugins.box import boundaries
folder, secret = sys.argv[1:]
for number in range(60):
    if os.fork() == 0:
        boundaries.enter_view(read=[], write=[], frozen=[], closed=[folder, secret], room_mb=1)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_records_are_named_by_their_real_path_behind_a_link_and_dots(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    records = CallRecords(tmp_path / "link" / ".." / "link" / "calls", boot_id="b")
    assert records.of("key").path.parent == tmp_path / "disk" / "calls" / "b"


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
