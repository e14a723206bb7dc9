"""One plugin process: started so that it outlives the gateway, watched, and ended at its deadline.

A small `sh` stands between: it holds the call's lock, notes that the plugin begins, runs it in a process group of its
own and notes its exit code, so that a gateway that is killed and started again finds the call running or answered.
Nothing here is asyncio's subprocess: that kills its children when the loop closes. A group that is killed as a whole
leaves no exit code. While no gateway lives nobody enforces the deadline; the next one does.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from ductile_gateway.plugins.call_folder import CallFolder
from ductile_gateway.plugins.response import Ending

# SIGTERM goes to the whole group: the trap lets the shell outlive the plugin and note how it ended, while the plugin
# itself gets the signal's default (a trapped signal is reset in children, an ignored one would not be). Then nothing
# of the group may stay; the shell, being in it, is the one who can name it without a doubt.
WRAPPER = """
stopped=
trap stopped=1 TERM
echo $$ >began || exit
(cd work && exec "$1" <../request >../stdout 2>../stderr)
echo $? >exit
test -z "$stopped" || kill -KILL 0
"""

PASSED_ON = ("PATH", "HOME", "TZ", "LANG", "LANGUAGE", "TMPDIR")
SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.1


@dataclass(frozen=True, slots=True)
class Limits:
    """`output_bytes` on stdout, and on stderr; `grace_seconds` between SIGTERM and SIGKILL."""

    output_bytes: int = 10 * 1024 * 1024
    grace_seconds: float = 5.0


DEFAULT_LIMITS = Limits()


def plugin_environment(
    ours: Mapping[str, str], passthrough: Iterable[str] = (), *, python: Path | None = None
) -> dict[str, str]:
    """What a plugin may see of our environment: as in Ductile, PATH, HOME, locale, zone, TMPDIR and what is named.

    `python`: an interpreter whose folder comes first on PATH, for machines without a `python3` there (or a slow one).
    """
    names = {*PASSED_ON, *passthrough}
    seen = {name: value for name, value in ours.items() if name in names or name.startswith("LC_")}
    if python is not None:
        seen["PATH"] = os.pathsep.join((str(python.parent), seen.get("PATH", os.defpath)))
    return seen


def start(
    folder: CallFolder, entrypoint: Path, *, lock: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """The process, started with the held lock as its stdin. Raises OSError."""
    return subprocess.Popen(  # noqa: S603 - no shell text is built: the entrypoint is an argument
        ["/bin/sh", "-c", WRAPPER, "sh", str(entrypoint)],
        cwd=folder.path,
        env=dict(environment),
        stdin=lock,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


async def attend(folder: CallFolder, *, deadline_at: datetime, limits: Limits) -> Ending:
    """Wait until the process is gone, ending it at the deadline or when it writes too much.

    Works the same for a process that this gateway started and for one it found. Cancelling leaves the process alone.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    overdue = began + (deadline_at - datetime.now(UTC)).total_seconds()
    ending: Ending = "ended"
    while ending == "ended" and folder.running():
        if folder.written() > limits.output_bytes:
            ending = "flooding"
        elif clock() >= overdue:
            ending = "overdue"
        else:
            await asyncio.sleep(_pause(clock() - began))
    if ending == "overdue":
        await _signal_until_gone(folder, signal.SIGTERM, seconds=limits.grace_seconds)
    if ending != "ended":
        await _signal_until_gone(folder, signal.SIGKILL, seconds=limits.grace_seconds)
    return "flooding" if folder.written() > limits.output_bytes else ending


def _pause(waited: float) -> float:
    """Until the next look: a tenth of the time waited, so that looking never delays a call by much more than that."""
    return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, waited / 10))


async def _signal_until_gone(folder: CallFolder, number: signal.Signals, *, seconds: float) -> None:
    """Send the signal once and wait so long at most: a process that cannot even be killed holds nobody up."""
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    signalled = False
    while folder.running() and clock() < until:
        signalled = signalled or _signal(folder, number)
        await asyncio.sleep(LONGEST_PAUSE / 10)


def _signal(folder: CallFolder, number: signal.Signals) -> bool:
    """Whether there was a group to signal: just after the start there is not yet."""
    group = folder.group()
    if group is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
    return True
