"""`ductile-gateway trust`, as it is called: which keys it shows, and when it believes an agent that began anew."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from schemas import subjects
from schemas.signing import AgentKey, AgentKeys
from tests.kit.agent_keys import AGENT, STRANGER


class House:
    """A gateway's settings and store, and an agent that tells these keys."""

    def __init__(self, folder: Path, url: str, **outbound: Any) -> None:
        self.folder = folder
        self.told: tuple[AgentKey, ...] = (AGENT.told(),)
        settings = {"nats": {"urls": [url]}, "store": str(folder / "store"), "outbound": outbound}
        (folder / "agentic.yaml").write_text(json.dumps({"gateway": settings}))

    async def answer(self, question: Msg) -> None:
        await question.respond(AgentKeys(keys=self.told).model_dump_json().encode())

    async def trust(self, *options: str) -> tuple[int, str]:
        """The exit code and what it says."""
        command = [sys.executable, "-m", "ductile_gateway", "trust", "--config", "agentic.yaml", *options]
        ended = await asyncio.to_thread(
            subprocess.run, command, cwd=self.folder, capture_output=True, text=True, check=False
        )
        return ended.returncode, ended.stdout


async def with_agent(link: NatsLink, house: House) -> House:
    await link.subscribe(subjects.AGENT_KEYS, house.answer)
    return house


async def test_it_believes_an_agent_that_began_anew_only_when_it_is_told_to(
    tmp_path: Path, link: NatsLink, some_server: EmbeddedNats
) -> None:
    house = await with_agent(link, House(tmp_path, some_server.url))
    code, said = await house.trust()
    assert (code, "no key is trusted yet" in said, f"told by the agent, and not trusted: {AGENT.id}" in said) == (
        0,
        1,
        1,
    )
    code, said = await house.trust("--again")
    assert (code, f"{AGENT.id} {AGENT.public}\n" in said, "trusted since" in said) == (0, True, True)
    house.told = (STRANGER.told(),)
    code, said = await house.trust()
    assert (code, f"told by the agent, and not trusted: {STRANGER.id} {STRANGER.public}" in said) == (1, True)
    assert f"{AGENT.id} {AGENT.public}, which the agent has retired" in said
    assert "if that is your agent, with new keys: ductile-gateway trust --again" in said
    code, said = await house.trust("--again")
    assert (code, STRANGER.public in said, AGENT.public in said) == (0, True, False)


async def test_where_no_agent_answers_nothing_is_changed(tmp_path: Path, some_server: EmbeddedNats) -> None:
    house = House(tmp_path, some_server.url)
    code, said = await house.trust("--again")
    assert (code, "no agent answers on agentic-loop.keys" in said) == (69, True)
    code, said = await house.trust()
    assert (code, "the agent could not be asked" in said, "no key is trusted yet" in said) == (0, True, True)
