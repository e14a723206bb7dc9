"""Locates the configuration file and the agent: --url, AGENTIC_URL, or the configuration nearby.

A token is sent to this address, so a file can only name an address of this machine.
"""

import os
from contextlib import suppress
from pathlib import Path

from groundwork.service.config_file import DEV_FILE, FILE, file_section, interpolated, nearby
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import is_loopback, url_host


def reader_config(named: Path | None) -> Path | None:
    """Returns the file for commands that read. It may be that of `agentic dev`, which comes first if ./agentic.yaml
    names no bus."""
    return nearby(named, *((FILE, DEV_FILE) if _names_a_bus(FILE) else (DEV_FILE, FILE)))


def _names_a_bus(path: Path) -> bool:
    if any(name.startswith("AGENT_NATS__") for name in os.environ) or not os.path.lexists(path):
        return True
    try:
        return "nats" in file_section(path) or "nats" in file_section(path, "agent")
    except Misconfigured:
        return True


DEFAULT_URL = "http://127.0.0.1:8700"
NAME_IT = "correct it, or give the agent's address with --url"


def agent_address(given: str) -> tuple[str, str]:
    """URL of the agent, and the place that names it. `given` is --url or AGENTIC_URL; empty without both. Raises
    Misconfigured for settings that name no agent here: a command must not reach another one instead."""
    if given:
        return given, "as AGENTIC_URL says" if given == os.environ.get("AGENTIC_URL") else "as --url says"
    path = None
    with suppress(PermissionError):  # another user's folder
        path = reader_config(None)
    try:
        http = interpolated(file_section(path, "agent", "http"), os.environ)
    except Misconfigured as error:
        raise Misconfigured(f"{error}\n  or give the agent's address with --url") from error
    variables = {name: os.environ.get(f"AGENT_HTTP__{name.upper()}") for name in ("host", "port")}
    http |= {name: value for name, value in variables.items() if value is not None}
    host, port, place = url_host(str(http.get("host", "127.0.0.1"))), str(http.get("port", 8700)), path or "environment"
    if not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise Misconfigured(f"{place}: agent.http.port is no port: {NAME_IT}")
    if not is_loopback(host.strip("[]")):
        raise Misconfigured(f"{place}: agent.http.host is no address of this machine: {NAME_IT}")
    is_given = not http.keys().isdisjoint(variables)
    return f"http://{host}:{int(port)}", f"as agent.http of {place} says" if is_given else "the default"
