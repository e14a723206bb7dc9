"""A machine that boots systemd: a systemd-nspawn container with the program as a wheel in /src, and what an operator
does on it by docs/OPERATIONS.md. `make test-systemd` makes its folder, and BOOTS_FROM names it. Changes are discarded.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit.pages import ROOT, blocks
from tests.kit.waiting import wait_until

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

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Output of a script in root's shell there, with both streams merged."""
        inside = ["nsenter", "--target", str(self.leader), "--all", "bash", "-c", f"cd /root\n{script}"]
        return subprocess.run(
            inside, env=ENVIRON, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=WITHIN_S, check=False,
        )  # fmt: skip

    def say(self, script: str) -> str:
        done = self.run(f"set -eu -o pipefail\n{script}")
        if done.returncode:
            noted = self.run("journalctl --no-pager --lines 40").stdout
            raise AssertionError(f"{script}\n{done.stdout[-4000:]}\n{noted}")
        return done.stdout

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
        "--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self",  # systemd 252 does not
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


PAGE = ROOT / "docs" / "OPERATIONS.md"
AS_ROOT = "cd /etc/agentic\nexport AGENTIC_TOKEN=$(cat operators.token)\n"
OF_THE_INDEX = re.compile(r"/opt/agentic/bin/pip install .*")
OF_THE_CHECKOUT = "/opt/agentic/bin/pip install --quiet --force-reinstall --no-deps --no-index /src/*.whl"
TOOLS = """
install -m 0640 -g agentic /src/machine/script.yaml /etc/agentic/script.yaml
install -d -m 0777 /srv/diary
cp -R /src/machine/tools /srv/tools
sed -i 's|folders: .*|folders: [/opt/agentic/plugins, /srv/tools]\\n    write: [/srv/diary]|' /etc/agentic/agentic.yaml
sed -i 's|provider: scripted.*|provider: scripted\\n    script: /etc/agentic/script.yaml|' /etc/agentic/agentic.yaml
install -d /etc/systemd/system/ductile-gateway.service.d
printf '[Service]\\nReadWritePaths=/srv/diary\\n' > /etc/systemd/system/ductile-gateway.service.d/tools.conf
systemctl daemon-reload
systemctl restart ductile-gateway agentic-loop
"""


def typed(heading: str, *which: int) -> str:
    """The commands for a machine under that heading; of several blocks the given ones, counted from 0."""
    found = [block.text for block in blocks(PAGE) if block.heading == heading and block.mark == "machine"]
    assert found, heading
    return OF_THE_INDEX.sub(OF_THE_CHECKOUT, "".join(found[number] for number in which or range(len(found))))


def page(machine: Machine, heading: str, *which: int) -> str:
    return machine.say(f"{AS_ROOT}{typed(heading, *which)}")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Installed as the page says, with two more tools and a script that uses them."""
    with booted(tmp_path_factory.mktemp("machine")) as bare:
        assert "✓ done" in bare.say(typed("Under systemd"))
        bare.say(TOOLS)
        ready(bare)
        yield bare


def ready(machine: Machine) -> None:
    machine.say(
        "for _ in $(seq 150); do\n"
        "  curl -sf http://127.0.0.1:8700/readyz && curl -sf http://127.0.0.1:8711/readyz && exit 0; sleep 0.2\n"
        "done; exit 1"
    )


def done(machine: Machine, goal: str) -> None:
    assert "✓ done" in machine.say(f"{AS_ROOT} agentic run '{goal}'")


def under_way(machine: Machine, *, seconds: int = 10) -> None:
    """A run whose tool has begun to write."""
    ready(machine)
    machine.say(
        f"rm -f /srv/diary/page\n{AS_ROOT} agentic wake 'nap {seconds} /srv/diary/page'\n"
        "for _ in $(seq 100); do test -e /srv/diary/page && exit 0; sleep 0.1; done; exit 1"
    )


def written_once(machine: Machine) -> None:
    """Checks that the run in progress ended well and wrote once."""
    ready(machine)
    machine.say(f"{AS_ROOT} agentic show last --watch")
    begun, ended = machine.say("cat /srv/diary/page").splitlines()
    assert begun.split() == [ended.split()[0], "begins"], "once, by the same call"


def runs(machine: Machine) -> list[dict[str, Any]]:
    return list(json.loads(machine.say(f"{AS_ROOT} agentic runs --json"))["runs"])


def comes_to(machine: Machine, status: str, run: str = "last") -> None:
    machine.say(
        f'{AS_ROOT} for _ in $(seq 100); do agentic show {run} --json | grep -qE \'"status": ?"{status}"\' && exit 0; '
        f"sleep 0.2; done; agentic show {run}; exit 1"
    )
