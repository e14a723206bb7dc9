"""Finds the real nats command line tool on PATH or by NATS_CLI.

Install it from github.com/nats-io/natscli: `go install github.com/nats-io/natscli/nats@latest`, or a release.
"""

import os
import shutil
from pathlib import Path

import pytest

FOUND = os.environ.get("NATS_CLI") or shutil.which("nats")
MISSING = "no nats command line tool: get one from github.com/nats-io/natscli, or name yours with NATS_CLI"
needs_nats_cli = pytest.mark.skipif(not FOUND, reason=MISSING)


def environment(folder: Path, url: str, **more: str) -> dict[str, str]:
    """Environment of a shell in which `nats` is the tool and talks to the server at `url`."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    if FOUND and not (bin_folder / "nats").exists():
        (bin_folder / "nats").symlink_to(Path(FOUND).resolve())
    return os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "NATS_URL": url} | more
