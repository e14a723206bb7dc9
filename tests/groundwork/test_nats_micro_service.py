"""A micro service that begins while its server does not answer."""

import os
import signal
from pathlib import Path

import pytest

from groundwork.nats.link import NatsLink
from groundwork.nats.micro_service import micro_service


@pytest.mark.usefixtures("nats_server")
async def test_a_service_that_began_while_the_server_was_deaf_answers_when_it_hears_again(
    tmp_path: Path, link: NatsLink
) -> None:
    pid = int((tmp_path / "nats" / "nats-server.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        await micro_service(link, name="here", description="Answers.")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert b'"name": "here"' in await link.request("$SRV.PING.here", b"")
