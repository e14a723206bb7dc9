"""The units of deploy/systemd are valid, confined, and fit the settings beside them."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.deploy.container_settings import agent_inside, gateway_inside

FOLDER = Path("deploy/systemd")
UNITS = sorted(path.name for path in FOLDER.glob("*.service"))
BACKUP = "agentic-backup.service"
SERVICES = [unit for unit in UNITS if unit != BACKUP]
"""Long-running services, each with its own user."""
needs_analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze: it is systemd's")


def values(unit: str) -> Mapping[str, list[str]]:
    """Values in the unit by name, all of a repeated name."""
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
    """A copy of the unit that starts the tested programs instead of those in /opt/agentic."""
    bin_folder = f"{Path(sys.executable).parent}/"
    text = (FOLDER / unit).read_text(encoding="utf-8").replace("/opt/agentic/bin/", bin_folder)
    (folder / unit).write_text(text.replace("ExecStart=nats-server", f"ExecStart={bin_folder}nats-server"))
    return folder / unit


SETTINGS = (FOLDER / "agentic.yaml").read_text(encoding="utf-8")
MOST_EXPOSED = {
    "agentic-backup.service": 24,
    "agentic-loop.service": 15,
    "agentic-nats.service": 15,
    "ductile-gateway.service": 23,
}
"""Tenths of the exposure of `systemd-analyze security`: 0 is closed, 100 open."""
SINCE_254 = ("RestartSteps", "RestartMaxDelaySec")


@needs_analyze
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_nothing_wrong_in_a_unit_which_is_confined_as_far_as_it_was_found_to_work(
    unit: str, tmp_path: Path
) -> None:
    file = with_programs_of_this_machine(unit, tmp_path)
    timer = [FOLDER / "agentic-backup.timer"] if unit == BACKUP else []
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--generators=no", file, *timer],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in said.stderr.splitlines() if unit in line and not any(name in line for name in SINCE_254)]
    assert (said.returncode, lines) == (0, [])
    threshold = f"--threshold={MOST_EXPOSED[unit]}"
    asked = ["systemd-analyze", "security", "--offline=yes", "--no-pager", threshold, f"{FOLDER}/{unit}"]
    assert subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("unit", ["agentic-loop.service", "ductile-gateway.service"])
def test_what_a_person_has_to_mend_first_is_not_started_again_and_anything_else_is(unit: str) -> None:
    assert one(unit, "RestartPreventExitStatus") == "78"
    assert one(unit, "Restart") == "on-failure"
    assert one(unit, "StartLimitIntervalSec") == "0", "as often as it takes"


def test_each_service_writes_where_its_unit_lets_it_and_a_gateway_that_ends_has_time_and_leaves_its_plugins_alone(
    tmp_path: Path,
) -> None:
    agent, gateway = agent_inside(SETTINGS, {}, tmp_path), gateway_inside(SETTINGS, {}, tmp_path)
    assert one("ductile-gateway.service", "KillMode") == "process"
    assert float(one("ductile-gateway.service", "TimeoutStopSec")) > gateway.grace_s
    own = {unit: Path("/var/lib") / one(unit, "StateDirectory") for unit in SERVICES}
    for place in (agent.store, agent.keys_path(), agent.workspaces):
        assert place.is_relative_to(own["agentic-loop.service"])
    for place in (gateway.store, gateway.keys_path()):
        assert place.is_relative_to(own["ductile-gateway.service"])
    assert all(one(unit, "ProtectSystem") == "strict" for unit in UNITS)


def test_the_users_of_the_units_are_made_and_share_nothing_but_the_settings() -> None:
    made = re.findall(r"^u (\S+)", (FOLDER / "sysusers.conf").read_text(), re.MULTILINE)
    assert sorted(one(unit, "User") for unit in SERVICES) == sorted(made)
    assert {group for unit in UNITS for group in values(unit).get("SupplementaryGroups", ())} == {"agentic-settings"}
