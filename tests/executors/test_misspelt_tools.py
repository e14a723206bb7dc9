"""An agent whose `agent.tools` has a misspelt name does not start, unless nobody is there to tell that it is."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from agent_service.bus.topology import topology
from agent_service.settings import load
from groundwork.nats.completing import set_up
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured
from tests.cli.examined import configured, found
from tests.e2e.agents import another_agent
from tests.executors.test_skills import Executor, catalog_of


async def of_an_agent(folder: Path, link: NatsLink, server: EmbeddedNats, tools: Sequence[str]) -> Path:
    await set_up(link, topology(max_gib=0.1))
    return configured(folder, server.url, tools=tools)


def test_a_tool_that_is_declared_with_a_misspelt_word_is_refused_by_its_name(tmp_path: Path) -> None:
    tool = {"name": "walk", "route": "walk", "commands": [{"name": "do", "tier": "read", "aprove": "never"}]}
    with pytest.raises(Misconfigured, match=r"agent\.tools\.declared: walk: commands\.0\.aprove: Extra inputs"):
        load(configured(tmp_path, tools={"declared": [tool]}), {})


async def test_it_ends_with_what_is_meant_and_doctor_says_so_beforehand(
    tmp_path: Path, link: NatsLink, nats_server: EmbeddedNats
) -> None:
    config = await of_an_agent(tmp_path, link, nats_server, ["talk", "wlak"])
    async with another_agent(config) as agent:
        await Executor(catalog_of("hands", "walk", "talk")).begin(link)
        code, told = await agent.ended()
    checked = (await found(config))["tools"]
    why = "agent.tools names wlak, which nobody offers: did you mean walk?"
    assert (code, told) == (78, f"{why} Correct agent.tools, then start again")
    assert (checked.mark, checked.text) == ("wrong", why)
