"""The nats command line tool, for tests that need the real one: found on PATH, or named by NATS_CLI.

github.com/nats-io/natscli has it: `go install github.com/nats-io/natscli/nats@latest`, or a binary of its releases.
"""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

FOUND = os.environ.get("NATS_CLI") or shutil.which("nats")
MISSING = "no nats command line tool: get one from github.com/nats-io/natscli, or name yours with NATS_CLI"
needs_nats_cli = pytest.mark.skipif(not FOUND, reason=MISSING)


def environment(folder: Path, url: str, **more: str) -> dict[str, str]:
    """A shell's environment in which `nats` is the tool, and talks to the server at `url`."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    if FOUND and not (bin_folder / "nats").exists():
        (bin_folder / "nats").symlink_to(Path(FOUND).resolve())
    return os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "NATS_URL": url} | more


async def said(
    *command: str | Path, environ: dict[str, str] | None = None, log: bool = False, within_s: float = 30.0
) -> str:
    """What a command prints, with its `log` or without. It has to end by itself, and well."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), within_s)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, f"{command}: {out.decode()}{err.decode()}"
    return out.decode() + err.decode() * log
