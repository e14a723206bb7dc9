"""Runs a plugin without protection: a child process with everything that the service has."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def run(plugin: Path, folder: Path, request: dict[str, Any]) -> tuple[int, bytes]:
    """Returns exit code and output."""
    (folder / "work").mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, str(plugin / "run.py")],
        cwd=folder / "work",
        input=json.dumps(request).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout
