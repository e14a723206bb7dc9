"""A gateway in a process of its own, to be killed: it runs one call of the probe and prints how that ended.

Arguments: the state directory, where to stop by itself (`before_start` or `nowhere`), the command and its payload.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from ductile_gateway.plugins.call_folder import CallFolders, read_boot_id
from tests.gateway.probe_calls import KEY, local_plugins, probe


def main(state_dir: str, stop: str, command: str, payload: str) -> None:
    plugins = local_plugins(Path(state_dir))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if stop == "before_start":
        with CallFolders(Path(state_dir, "calls"), boot_id=read_boot_id()).publish(KEY, b"{}"):
            os.kill(os.getpid(), signal.SIGKILL)
    verdict = asyncio.run(plugins.run(probe(command, **json.loads(payload))))
    sys.stdout.write(repr(verdict))


if __name__ == "__main__":
    main(*sys.argv[1:])
