"""The settings of deploy/ as a service reads them inside its container, with files in place of its secrets."""

import re
from collections.abc import Mapping
from pathlib import Path

import agent_service.settings
import ductile_gateway.settings
from agent_service.settings import AgentSettings
from ductile_gateway.settings import GatewaySettings

_FILES = re.compile(r"(?<=[ {:])(/etc/agentic/|/run/secrets/)([\w./-]+)")


def agent_inside(text: str, environ: Mapping[str, str], folder: Path) -> AgentSettings:
    return agent_service.settings.load(_with_files(text, folder), environ)


def gateway_inside(text: str, environ: Mapping[str, str], folder: Path) -> GatewaySettings:
    return ductile_gateway.settings.load(_with_files(text, folder), environ)


def _with_files(text: str, folder: Path) -> Path:
    """Writes the settings with paths of existing files in place of the secrets."""
    for number, found in enumerate(sorted(set(_FILES.findall(text)))):
        place = folder / "".join(found).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"the content of secret number {number}")
    file = folder / "agentic.yaml"
    file.write_text(_FILES.sub(lambda found: f"{folder}{found[0]}", text))
    return file
