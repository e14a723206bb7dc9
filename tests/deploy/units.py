"""The units in deploy/systemd, read as systemd reads them as far as that is needed here."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

FOLDER = Path("deploy/systemd")
UNITS = sorted(path.name for path in FOLDER.glob("*.service"))
BACKUP = "agentic-backup.service"
SERVICES = [unit for unit in UNITS if unit != BACKUP]
"""Those that run on, each as a user of its own."""
needs_analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze: it is systemd's")


def values(unit: str) -> Mapping[str, list[str]]:
    """What stands in the unit, by name; of a name that stands there more than once, all of it."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / unit).read_text(encoding="utf-8").splitlines():
        name, is_set, value = line.partition("=")
        if is_set and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def one(unit: str, name: str) -> str:
    [value] = values(unit)[name]
    return value


def with_programs_of_this_machine(unit: str, folder: Path) -> Path:
    """A copy of the unit that begins what is installed for the tests, in place of what /opt/agentic has."""
    bin_folder = f"{Path(sys.executable).parent}/"
    text = (FOLDER / unit).read_text(encoding="utf-8").replace("/opt/agentic/bin/", bin_folder)
    (folder / unit).write_text(text.replace("ExecStart=nats-server", f"ExecStart={bin_folder}nats-server"))
    return folder / unit
