"""The commands of the guide, run as they stand there: in terminals, in a home and in a copy of this repository.

Only addresses differ: ports are free ones.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agent_service.workbench.dev import free_port
from tests.ductile.sample_house import FILE_HANDLER, FILE_HANDLER_MANIFEST, ROOT
from tests.kit.waiting import wait_until

GUIDE, README = (Path("docs") / "DUCTILE.md", Path("deploy") / "ductile" / "README.md")
NOT_RUN = "## Version N"
"""What follows in the README is for a Ductile that is not here."""
PORTS = ("8080", "8081", "8700", "8710", "4222")
WITHIN_S = 60.0


def blocks(text: str) -> list[str]:
    """The commands that a page shows, block by block."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text.partition(NOT_RUN)[0], re.DOTALL | re.MULTILINE)
    return [block for language, block in fenced if not language]


def commands() -> list[str]:
    return [block for page in (GUIDE, README) for block in blocks((ROOT / page).read_text(encoding="utf-8"))]


@dataclass(frozen=True, slots=True)
class Terminal:
    """A bash of its own."""

    bash: "subprocess.Popen[str]"
    log: Path

    def run(self, block: str) -> str:
        """What the block prints; it has to end, and well."""
        before = len(self.printed())
        self.start(f"set -e\n{block}\nset +e\necho all-of-it-went-well")
        wait_until(
            lambda: "all-of-it-went-well\n" in self.printed()[before:] or self.bash.poll() is not None,
            lambda: f"{block}\n{self.printed()}",
            within_s=WITHIN_S,
        )
        assert self.bash.poll() is None, f"{block}\n{self.printed()}"
        return self.printed()[before:]

    def start(self, block: str) -> None:
        """Begin a block whose last command stays in the foreground."""
        assert self.bash.stdin
        self.bash.stdin.write(f"{block}\n")
        self.bash.stdin.flush()

    def printed(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def interrupt(self) -> None:
        """Ctrl-C, and the terminal is closed."""
        assert self.bash.stdin
        self.bash.stdin.close()
        if self.bash.poll() is None:
            os.killpg(self.bash.pid, signal.SIGINT)
            self.bash.wait(WITHIN_S)


@dataclass(frozen=True, slots=True)
class Place:
    """A home, and beside it a copy of what the guide needs of this repository."""

    folder: Path
    ports: Mapping[str, int]
    stack: ExitStack
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    def url(self, port: str) -> str:
        return f"http://127.0.0.1:{self.ports[port]}"

    def here(self, text: str) -> str:
        """The text with the addresses of this place."""
        for port, own in self.ports.items():
            text = re.sub(rf"\b{port}\b", str(own), text)
        text = text.replace("/path/to/ductile/plugins", str(self.folder / "ductiles-own"))
        addresses = f"--agent {self.url('8700')} --gateway {self.url('8710')}"
        text = text.replace("ductile install ~/ductile", f"ductile install ~/ductile {addresses}")
        return text.replace("nats-server --jetstream", f"nats-server --port {self.ports['4222']} --jetstream")

    def block(self, beginning: str) -> str:
        """The one block that begins like that, as it stands, with the addresses of this place."""
        (found,) = (block for block in commands() if block.startswith(beginning))
        return self.here(found)

    def terminal(self) -> Terminal:
        log = Path(tempfile.mkstemp(dir=self.folder, suffix=".log")[1])
        with log.open("w") as output:
            bash = subprocess.Popen(
                ["bash"],
                cwd=self.repository,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        opened = Terminal(bash, log)
        self.stack.callback(opened.interrupt)
        return opened

    def change(self, file: Path, change: Callable[[Any], None]) -> None:
        """What the guide says in words: edit a file."""
        content = yaml.safe_load(file.read_text())
        change(content)
        file.write_text(yaml.safe_dump(content))


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """Nothing is started yet."""
    with ExitStack() as stack:
        made = Place(folder, {port: free_port() for port in PORTS}, stack)
        made.home.mkdir()
        _copy(made)
        _programs(folder / "bin")
        _file_handler(folder / "ductiles-own" / "file_handler")
        made.environment.update(
            HOME=str(made.home),
            USER=os.environ.get("USER", str(os.getuid())),
            PATH=f"{folder / 'bin'}:{ROOT / '.venv' / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            AGENTIC_URL=made.url("8700"),
        )
        yield made


def _copy(made: Place) -> None:
    unwanted = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(ROOT / "deploy", made.repository / "deploy", ignore=unwanted)
    for file in made.repository.glob("deploy/ductile/config-*/**/*.yaml"):
        file.write_text(made.here(file.read_text()))
    (made.repository / ".venv").symlink_to(ROOT / ".venv")


def _programs(folder: Path) -> None:
    folder.mkdir()
    (folder / "ductile").symlink_to(os.environ["DUCTILE_BIN"])


def _file_handler(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "manifest.yaml").write_text(yaml.safe_dump(FILE_HANDLER_MANIFEST))
    (folder / "run.py").write_text(FILE_HANDLER)
    (folder / "run.py").chmod(0o755)
