"""Check of the section `gateway:`, which is the gateway's own to read: that program is run, and asks nobody else."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from pathlib import Path

from agent_service.cli.doctor.check import Check, ok, warning, wrong
from groundwork.service.strict_yaml import NotYaml, parse

SECTION = "gateway"
NAME = "gateway section"
READS_WITHIN_S = 30.0
COMMAND = (sys.executable, "-m", "ductile_gateway", "check", "--settings-only", "--config")


async def of_the_gateway(config: Path | None) -> AsyncIterator[Check]:
    """Whether a gateway on this machine could start with its section; nothing for a configuration that has none."""
    if config is None or not _has_section(config):
        return
    asked = await asyncio.create_subprocess_exec(*COMMAND, str(config), stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE)
    try:
        _, said = await asyncio.wait_for(asked.communicate(), READS_WITHIN_S)
    except TimeoutError:
        asked.kill()
        yield warning(NAME, f"it was not read within {READS_WITHIN_S:g} s", remedy="run `ductile-gateway check`")
        return
    if asked.returncode == 0:
        yield ok(NAME, "can be used")
    else:
        problem = said.decode("utf-8", "replace").strip().removeprefix("ductile-gateway: ")
        yield wrong(NAME, problem, remedy="docs/CONFIGURATION.md lists every setting")


def _has_section(config: Path) -> bool:
    try:
        content = parse(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, NotYaml):  # told by the agent's own reading of it
        return False
    return isinstance(content, dict) and SECTION in content
