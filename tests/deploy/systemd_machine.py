"""A machine that boots systemd: a systemd-nspawn container with the program as a wheel in /src.

Its changes are discarded. `make test-systemd` makes its folder, and BOOTS_FROM names it.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
OF_TESTS = ROOT / "tests" / "deploy" / "machine"
FROM = os.environ.get("BOOTS_FROM", "")
needs_boot = pytest.mark.skipif(
    not (FROM and Path(FROM, "ready").exists() and os.geteuid() == 0 and shutil.which("systemd-nspawn")),
    reason="no machine to boot: `make test-systemd`, as root on Linux, makes one",
)
ENVIRON = {
    "PATH": "/opt/agentic/bin:/usr/local/bin:/usr/sbin:/usr/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "COLUMNS": "120",
}
WITHIN_S = 240.0


@dataclass(frozen=True, slots=True)
class Machine:
    """`leader` is the host's id of its process 1."""

    leader: int

    def run(self, script: str, *, within_s: float = WITHIN_S) -> subprocess.CompletedProcess[str]:
        """Output of a script in root's shell there, with both streams merged."""
        inside = ["nsenter", "--target", str(self.leader), "--all", "bash", "-c", f"cd /root\n{script}"]
        return subprocess.run(
            inside, env=ENVIRON, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=within_s, check=False,
        )  # fmt: skip

    def say(self, script: str, *, within_s: float = WITHIN_S) -> str:
        done = self.run(f"set -eu -o pipefail\n{script}", within_s=within_s)
        if done.returncode:
            noted = self.run("journalctl --no-pager --lines 40").stdout
            raise AssertionError(f"{script}\n{done.stdout[-4000:]}\n{noted}")
        return done.stdout

    def put(self, source: Path, folder: str) -> None:
        there = Path(f"/proc/{self.leader}/root{folder}")
        there.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, there)

    def holds(self, script: str) -> bool:
        return self.run(script).returncode == 0


@contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """`folder` is for its console and the files that it needs."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    shutil.copytree(OF_TESTS, folder / "machine")
    server = Path(sys.executable).parent / "nats-server"
    command = ["systemd-nspawn", "--quiet", "--directory", FROM, "--volatile=overlay", "--private-network", "--boot"]
    command += [
        "--register=no",
        "--keep-unit",
        "--console=pipe",
        f"--bind-ro={folder}:/src",
        f"--bind-ro={server}:/usr/local/bin/nats-server",
    ]
    environ = os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
    with (folder / "console").open("wb") as console:
        process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: _leader(process) and Machine(_leader(process)).holds("systemctl is-system-running --wait"),
            within_s=60.0,
        )
        yield Machine(_leader(process))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _leader(process: subprocess.Popen[bytes]) -> int:
    """Process 1 is the only child of the container's; 0 if there is none yet."""
    assert process.poll() is None, "the machine does not boot"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else 0
