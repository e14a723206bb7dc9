"""A service tells systemd that it is ready, and nobody else."""

import socket
from pathlib import Path

import pytest

from groundwork.service.signals import tell_ready


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_hears_that_the_service_is_ready(abstract: bool, tmp_path: Path) -> None:
    place = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(f"\0{place}" if abstract else place)
        line.settimeout(5)
        tell_ready({"NOTIFY_SOCKET": f"@{place}" if abstract else place})
        assert line.recv(64) == b"READY=1"
