"""Real nats-servers: a shared one, emptied for each test, and servers of a test's own."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from agent_service.bus.topology import topology
from agent_service.workbench.dev import free_port
from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import Spec, set_up

DAY = 86400.0
LARGE = 1 << 40
"""Bytes that a server may store; streams reserve theirs whatever the disk has."""


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    """A server of the test's own, in `nats` of its folder, for tests that stop it or read its files."""
    async with EmbeddedNats(tmp_path / "nats", sync_interval="1s") as server:
        yield server


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedNats]:
    server = EmbeddedNats(tmp_path_factory.mktemp("shared") / "nats", sync_interval="1s")
    with asyncio.Runner() as runner:
        runner.run(server.start())
        yield server
        runner.run(server.stop())


@pytest.fixture
def some_server(request: pytest.FixtureRequest) -> EmbeddedNats:
    """The test's own server if it asks for one, else the shared one."""
    own = "nats_server" in request.fixturenames
    server: EmbeddedNats = request.getfixturevalue("nats_server" if own else "shared_server")
    return server


@pytest.fixture
async def link(some_server: EmbeddedNats) -> AsyncIterator[NatsLink]:
    """A link to an empty server; streams that the test makes are deleted after it."""
    async with connect(NatsSettings(urls=(some_server.url,)), "test") as link:
        yield link
    if not some_server.died:
        async with connect(NatsSettings(urls=(some_server.url,)), "test") as link:
            for stream in await link.client.jetstream().streams_info():
                await link.client.jetstream().delete_stream(stream.config.name or "")


@pytest.fixture
def unused_port() -> int:
    return free_port()


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    """With the streams, consumers and buckets of both services."""
    await set_up(link, topology(max_gib=1))
    return link


async def a_stream(link: NatsLink, name: str = "WORK", **settings: Any) -> None:
    defaults = {"subjects": ["work.>"], "max_age": DAY, "duplicate_window": DAY, "discard": "new", "max_bytes": 1 << 26}
    await set_up(link, (Spec(name, defaults | settings),))


async def a_consumer(link: NatsLink, **settings: Any) -> None:
    """`workers` of the stream WORK."""
    await set_up(link, (Spec("WORK", {"ack_wait": 30.0, "max_ack_pending": 1000} | settings, "workers"),))


async def heard(link: NatsLink, subject: str) -> list[Msg]:
    messages: list[Msg] = []

    async def hear(message: Msg) -> None:
        messages.append(message)

    await link.subscribe(subject, hear)
    return messages


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*request.split(), *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return key, certificate


def start_process(*command: str | Path, stdout: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)


@contextlib.asynccontextmanager
async def server_with(folder: Path, port: int, config: Mapping[str, Any]) -> AsyncIterator[str]:
    """Starts a server with logins, permissions or TLS, which the embedded one lacks, and yields its address."""
    file = folder / "server.json"
    with_jetstream = "jetstream" in config and {"jetstream": {"max_file_store": LARGE, **config["jetstream"]}}
    file.write_text(json.dumps({"listen": f"127.0.0.1:{port}", **config, **(with_jetstream or {})}))
    process = start_process(Path(sys.executable).parent / "nats-server", "--config", file)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
