"""Which configuration file a command uses when none is named."""

import os
from pathlib import Path

from groundwork.service.strict_yaml import NotYaml, parse

OWN = Path("agentic.yaml")
OF_DEV = Path(".agentic") / "agentic.yaml"
LOGIN_OF_DEV = "nats-url"
"""The file beside it with the address of its bus, and the login in it."""


def own(named: Path | None) -> Path | None:
    """For what starts or sets up something: the named file or ./agentic.yaml. None where neither is."""
    return _first(named, OWN)


def nearby(named: Path | None) -> Path | None:
    """For what only looks: also the file of `agentic dev` in this folder; that comes first where ours names no bus, as
    `agentic init` writes it for `agentic dev`."""
    return _first(named, *((OWN, OF_DEV) if _names_a_bus(OWN) else (OF_DEV, OWN)))


def told(path: Path | None) -> str:
    return str(path) if path else "no file: the defaults and the environment"


def _first(named: Path | None, *found: Path) -> Path | None:
    """What is there and cannot be read is no reason to go by the defaults: whoever reads it says what is wrong."""
    return named or next(filter(os.path.lexists, found), None)


def _names_a_bus(path: Path) -> bool:
    """Also where it cannot be read, which is told by who reads it in earnest."""
    if any(name.startswith("AGENT_NATS__") for name in os.environ) or not os.path.lexists(path):
        return True
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, NotYaml):
        return True
    agent = content.get("agent") if isinstance(content, dict) else None
    return not isinstance(content, dict) or "nats" in content or (isinstance(agent, dict) and "nats" in agent)
