"""A real nats-server for tests: on a free port, in the test's own folder, ended with the test."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import ConsumerSpec, StreamSpec, Topology, create_missing

DAY = 86400.0


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    async with EmbeddedNats(tmp_path / "nats", sync_interval="1s") as server:
        yield server


@pytest.fixture
async def link(nats_server: EmbeddedNats) -> AsyncIterator[NatsLink]:
    link = await connect(NatsSettings(urls=(nats_server.url,)))
    yield link
    await link.close()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def a_stream(link: NatsLink, name: str = "WORK", **settings: Any) -> None:
    """A stream that takes `work.>` unless told otherwise."""
    defaults = {"subjects": ["work.>"], "max_age": DAY, "duplicate_window": DAY, "discard": "new", "max_bytes": 1 << 26}
    await create_missing(link, Topology(streams=(StreamSpec(name, defaults | settings),)))


async def a_consumer(link: NatsLink, name: str = "workers", *, stream: str = "WORK", **settings: Any) -> None:
    defaults = {"ack_wait": 30.0, "max_ack_pending": 1000}
    await create_missing(link, Topology(consumers=(ConsumerSpec(stream, name, defaults | settings),)))


def start_process(*command: str | Path, stdout: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)


@contextlib.asynccontextmanager
async def server_with(folder: Path, port: int, config: Mapping[str, object]) -> AsyncIterator[str]:
    """A server with logins, permissions or TLS, which the embedded one does not have. Yields its address."""
    file = folder / "server.json"
    file.write_text(json.dumps({"listen": f"127.0.0.1:{port}", **config}))
    process = start_process(Path(sys.executable).parent / "nats-server", "--config", file)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
