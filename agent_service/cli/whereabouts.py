"""Which configuration file a command uses, and which agent: --url, AGENTIC_URL, or the configuration nearby.

A token goes to the address that is found here: a file can name an address of this machine, and no other.
"""

import os
from contextlib import suppress
from pathlib import Path

from groundwork.service.config_file import as_given, part
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import called, is_loopback
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
        return "nats" in part(path) or "nats" in part(path, "agent")
    except Misconfigured:
        return True


HERE = "http://127.0.0.1:8700"


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
        http = as_given(part(path, "agent", "http"), os.environ)
        said_by_variables = {name: os.environ.get(f"AGENT_HTTP__{name.upper()}") for name in ("host", "port")}
        http |= {name: value for name, value in said_by_variables.items() if value is not None}
        url = _listening(str(http.get("host", "127.0.0.1")), str(http.get("port", 8700)))
    except Misconfigured:
        return Address(HERE, f"the default, for {path} cannot be read")
    except ValueError as error:
        return Address(HERE, f"the default, for {path or 'the environment'} {error}")
    is_said = not http.keys().isdisjoint(said_by_variables)
    return Address(url, f"as agent.http of {path or 'the environment'} says" if is_said else "the default")


def _listening(host: str, port: str) -> str:
    """The address to call for a listening one. Raises ValueError where it cannot be called from here."""
    if not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError("names no port in agent.http")
    if not is_loopback(called(host).strip("[]")):
        raise ValueError("names no address of this machine in agent.http")
    return f"http://{called(host)}:{int(port)}"
