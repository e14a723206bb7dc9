"""A NATS server that is asked what it says of a configuration."""

import subprocess
import sys
from pathlib import Path


def read_by_nats(file: Path) -> subprocess.CompletedProcess[str]:
    """What a real server says of that configuration, which it does not begin to serve."""
    server = Path(sys.executable).parent / "nats-server"
    environ = {"SERVER_NAME": "nats-1", "NATS_TOKEN": "t0123456789abcdef"}
    return subprocess.run([server, "-t", "-c", file], capture_output=True, text=True, check=False, env=environ)
