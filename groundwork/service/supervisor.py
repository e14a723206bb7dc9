"""Telling systemd that the service is ready, where that has started it (sd_notify(3)); elsewhere nothing is told."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


def tell_ready(environ: Mapping[str, str] = os.environ) -> None:
    """What waits for this service begins now. A supervisor that does not listen costs nothing but its waiting."""
    address = environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, suppress(OSError):
        line.sendto(b"READY=1", address.replace("@", "\0", 1) if address[0] == "@" else address)
