"""Restate: its unchanged server (whose RocksDB log syncs), a workflow in its own process, and a client.

The server is licensed under the Business Source License and comes from npm (package.json).
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import hypercorn
import hypercorn.asyncio
import restate

from tests.peers.job import decide, serve, times_written, write

STARTED_WITHIN_S = 60.0


def workflow(folder: Path) -> Any:
    job = restate.Workflow("job")

    async def run(context: Any, name: str) -> int:
        step = 0
        while (decision := await context.run_typed("think", decide, step=step))["verdict"] != "done":
            line = decision["arguments"]["line"]
            await context.run_typed("act", write, folder=folder, run=name, line=line)
            step += 1
        return step

    job.main()(run)
    return job


class OnRestate:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def run(self, name: str) -> None:
        (await self._client.post(f"/job/{name}/run", json=name)).raise_for_status()

    async def go_on(self, name: str) -> bool:
        answer = await self._client.get(f"/restate/workflow/job/{name}/attach")
        if answer.status_code == httpx.codes.NOT_FOUND:
            await self.run(name)
            return True
        return bool(answer.is_success)


async def work(folder: Path, port: int) -> None:
    """Process of the workflow."""
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{port}"]
    await hypercorn.asyncio.serve(restate.app([workflow(folder)]), config)


@contextmanager
def server(folder: Path, ingress: int, admin: int) -> Iterator[None]:
    (program,) = Path(os.environ["RESTATE"]).glob("restate-server-*/bin/restate-server")
    settings = {
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{free_port()}",
        "RESTATE_NODE_NAME": "one",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
    }
    command = [str(program), "--base-dir", str(folder / "restate")]
    with (folder / "restate.log").open("ab") as log:
        running = subprocess.Popen(command, env=os.environ | settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        running.terminate()
        running.wait()


@contextmanager
def worker(folder: Path, port: int) -> Iterator[None]:
    command = [sys.executable, "-m", __spec__.name, str(folder), str(port)]
    with (folder / "worker.log").open("ab") as log:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        running.kill()  # asked to end it waits for connections that stay
        running.wait()


async def register(admin: str, service: str) -> None:
    """Registers the workflow at the server, once both are up."""
    until = time.monotonic() + STARTED_WITHIN_S
    async with httpx.AsyncClient(base_url=admin) as client:
        while True:
            try:
                answer = await client.post("/deployments", json={"uri": service, "force": True})
                if answer.is_success:
                    return
                problem = answer.text
            except httpx.TransportError as error:
                problem = repr(error)
            if time.monotonic() > until:
                raise TimeoutError(f"Restate did not start: {problem}")
            await asyncio.sleep(0.1)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def port_of(folder: Path, name: str) -> int:
    """The same port after a restart: runs in progress are bound to the registered address."""
    file = folder / f"{name}.port"
    if not file.exists():
        file.write_text(str(free_port()))
    return int(file.read_text())


async def main(folder: Path) -> None:
    ingress, admin, service = (port_of(folder, name) for name in ("ingress", "admin", "service"))
    with server(folder, ingress, admin), worker(folder, service):
        await register(f"http://127.0.0.1:{admin}", f"http://127.0.0.1:{service}")
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ingress}", timeout=120) as client:
            await serve(OnRestate(client), lambda: times_written(folder))


if __name__ == "__main__":
    given = sys.argv[2:]
    asyncio.run(work(Path(sys.argv[1]), int(given[0])) if given else main(Path(sys.argv[1])))
