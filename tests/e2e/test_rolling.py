"""Agents that share a store are replaced one by one while runs are open: an older leaves alone what a newer has moved
on."""

from pathlib import Path
from typing import Any

import agent_service
from tests.e2e.bodies import PROBES, lines, recording, touch, view, wake, written
from tests.kit.cluster import Cluster
from tests.kit.fleet import FleetOptions, Member, fleet
from tests.kit.waiting import until

WITHIN_S = 90.0
NEWER = """
from agent_service.store.shared_log import facts
facts.VERSION = facts.VERSION + 1
facts.KNOWN_LEVEL += facts.RULES_BELOW
from agent_service.cli.main import main
main()
"""


def a_newer_version(folder: Path) -> Path:
    """A checkout whose agent writes facts that this version does not know."""
    package = folder / "agent_service"
    package.mkdir(parents=True)
    real = str(Path(agent_service.__file__).parent)
    (package / "__init__.py").write_text(f"__path__.append({real!r})\n")
    (package / "__main__.py").write_text(NEWER)
    return folder


def fleet_options(folder: Path, script: dict[str, Any], **more: Any) -> FleetOptions:
    file = written(script, folder)
    return FleetOptions(folder=folder / "fleet", script=file, plugins=(PROBES,), store="jetstream", agents=2, **more)


async def done(member: Member, *runs: str) -> bool:
    return {(await view(member, run))["state"] for run in runs} == {"done"}


async def test_an_older_agent_leaves_alone_what_a_newer_one_has_moved_on_and_goes_on_with_its_own(
    cluster: Cluster, tmp_path: Path
) -> None:
    go = tmp_path / "marks" / "go"
    script = recording(tmp_path / "marks" / "lines", go=go, steps=2)
    async with fleet(cluster, fleet_options(tmp_path, script)) as ships:
        older, newer = ships.agents
        await newer.end()
        newer.code = a_newer_version(tmp_path / "newer")
        newer.start()
        await newer.ready()
        own, ahead = await wake(older), await wake(newer)
        await until(lambda: both_begun(older, own, newer, ahead), within_s=WITHIN_S)
        newer.kill()
        for step in (1, 2):
            touch(go, step)
        await until(lambda: done(older, own), within_s=WITHIN_S)
        await until(
            lambda: lines(tmp_path / "marks" / "lines") == 2 + 1
        )  # with the one that the other run had asked for
        newer.start()
        await newer.ready()
        await until(lambda: done(newer, own, ahead), within_s=WITHIN_S)
    assert lines(tmp_path / "marks" / "lines") == 4


async def both_begun(older: Member, own: str, newer: Member, ahead: str) -> bool:
    """Whether each waits for its tool."""
    return [len(run["steps"]) for run in (await view(older, own), await view(newer, ahead))] == [1, 1]
