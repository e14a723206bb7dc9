"""Which configuration file a command uses, and which agent: --url, AGENTIC_URL, or the configuration nearby.

A token goes to the address that is found here: a file can name an address of this machine, and no other.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from groundwork.service.secret import called, is_loopback
from groundwork.service.strict import NotYaml, parse
from schemas.values import dataclass

OWN = Path("agentic.yaml")
OF_DEV = Path(".agentic") / "agentic.yaml"


def own(named: Path | None) -> Path | None:
    """For what starts or sets up something: the named file or ./agentic.yaml. None where neither is."""
    return _first(named, OWN)


def nearby(named: Path | None) -> Path | None:
    """For readers: also the file of `agentic dev`, which comes first where ./agentic.yaml names no bus."""
    return _first(named, *((OWN, OF_DEV) if _names_a_bus(OWN) else (OF_DEV, OWN)))


def told(path: Path | None) -> str:
    return str(path) if path else "no file: the defaults and the environment"


def _first(named: Path | None, *found: Path) -> Path | None:
    return named or next(filter(os.path.lexists, found), None)


def _names_a_bus(path: Path) -> bool:
    if any(name.startswith("AGENT_NATS__") for name in os.environ) or not os.path.lexists(path):
        return True
    try:
        content = _content(path)
    except ValueError:
        return True
    return "nats" in content or "nats" in _part(content, "agent")


def _content(path: Path) -> dict[str, Any]:
    """Raises ValueError where it cannot be read."""
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, NotYaml) as error:
        raise ValueError("cannot be read") from error
    return found if isinstance(found, dict) else {}


def _part(content: dict[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


HOST, PORT = "127.0.0.1", "8700"
HERE = f"http://{HOST}:{PORT}"
_OVERRIDES = {"host": "AGENT_HTTP__HOST", "port": "AGENT_HTTP__PORT"}
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    whence: str


def address_of(said: str) -> Address:
    """`said`: by the command line or AGENTIC_URL; empty where neither says anything."""
    if said:
        by_variable = said == os.environ.get("AGENTIC_URL")
        return Address(said, "as AGENTIC_URL says" if by_variable else "as --url says")
    path = None
    with suppress(PermissionError):  # another user's folder
        path = nearby(None)
    try:
        section = _part(_part(_content(path), "agent"), "http") if path else {}
        http = {name: _VARIABLE.sub(_value, str(section[name])) for name in _OVERRIDES if name in section}
        http |= {name: os.environ[variable] for name, variable in _OVERRIDES.items() if variable in os.environ}
        url = _listening(http.get("host", HOST), http.get("port", PORT))
    except ValueError as error:
        return Address(HERE, f"the default, for {path or 'the environment'} {error}")
    return Address(url, f"as agent.http of {path or 'the environment'} says" if http else "the default")


def _listening(host: str, port: str) -> str:
    """The address to call for a listening one. Raises ValueError where it cannot be called from here."""
    if not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError("names no port in agent.http")
    if not is_loopback(called(host).strip("[]")):
        raise ValueError("names no address of this machine in agent.http")
    return f"http://{called(host)}:{int(port)}"


def _value(variable: re.Match[str]) -> str:
    return os.environ.get(variable[1], variable[2] or "")
