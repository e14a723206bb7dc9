"""The agent discovers every executor on the bus and knows which of them are present."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_service.bus.skills import NatsSkills
from agent_service.settings import AgentSettings, LimitSettings, ToolsSettings, load
from ductile_gateway.bus.incoming import answer_catalog, serve_endpoints
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured
from schemas import subjects
from schemas.catalog import Catalog
from schemas.status import GatewayStatus
from tests.cli.stores import configured
from tests.kit.waiting import until


def catalog_of(executor: str | None, *names: str, tier: str = "read") -> bytes:
    tools = [{"name": name, "route": name, "commands": [{"name": "do", "tier": tier}]} for name in names]
    return json.dumps({"executor": executor, "tools": tools}).encode()


class Executor:
    """Answers catalog requests while present."""

    def __init__(self, answer: bytes) -> None:
        self.answer: bytes | None = answer

    async def begin(self, link: NatsLink) -> "Executor":
        await link.subscribe(subjects.CATALOG, self._tell)
        await link.client.flush()
        return self

    async def _tell(self, message: Any) -> None:
        if self.answer is not None:
            await message.respond(self.answer)


async def names(skills: NatsSkills) -> list[str]:
    return [tool.name for tool in (await skills.catalog()).tools]


async def test_a_tool_that_the_settings_declare_is_offered_beside_those_of_executors_and_checked_as_theirs(
    link: NatsLink,
) -> None:
    walk, flawed = json.loads(catalog_of(None, "walk", "talk"))["tools"]
    flawed["commands"][0]["input_schema"] = {"type": "nonsense"}
    declared = ToolsSettings(declared=(walk, flawed))
    skills = NatsSkills(link, AgentSettings(tools=declared), fresh_s=0.0)
    assert await names(skills) == ["walk"]
    assert skills.present() == {"unnamed"}
    assert "unnamed offers 'talk', which is left out: the input_schema of command do" in skills.problems[0]
    await Executor(catalog_of("hands", "swim")).begin(link)
    assert await names(skills) == ["swim", "walk"]


async def test_a_misspelt_name_is_told_with_what_is_meant_and_one_that_is_offered_is_not(link: NatsLink) -> None:
    await Executor(catalog_of("hands", "walk", "talk")).begin(link)
    for allow, said in ((("talk", "wlak"), "wlak (did you mean walk?)"), (("swim",), "swim"), (("walk",), "")):
        skills = NatsSkills(link, AgentSettings(tools=allow))
        await skills.catalog()
        assert skills.all_problems == ((f"agent.tools names {said}, which no executor offers",) if said else ())


async def test_an_executor_that_falls_silent_keeps_its_tools_and_is_known_to_be_away(link: NatsLink) -> None:
    skills = NatsSkills(link, AgentSettings(), fresh_s=0.0)
    await Executor(catalog_of("stays", "walk")).begin(link)
    leaves = await Executor(catalog_of("leaves", "talk")).begin(link)
    assert await names(skills) == ["talk", "walk"]
    assert skills.present() == {"stays", "leaves"}
    leaves.answer = None
    assert await names(skills) == ["talk", "walk"]
    assert skills.present() == {"stays"}


async def test_what_only_one_of_several_gateways_has_is_on_offer(link: NatsLink) -> None:
    skills = NatsSkills(link, AgentSettings(), fresh_s=0.0)
    async with serve_endpoints(link, _status, each="a") as one, serve_endpoints(link, _status, each="b") as other:
        for service, each, tool in ((one, "a", "walk"), (other, "b", "talk")):
            catalog = Catalog.model_validate_json(catalog_of("hands", tool))
            await answer_catalog(service, lambda catalog=catalog: catalog, each=each)  # type: ignore[misc]
        await until(lambda: names(skills), lambda offered: offered == ["talk", "walk"])
    assert skills.problems == ()


async def _status() -> GatewayStatus:
    raise NotImplementedError


@pytest.mark.parametrize(("depth", "offered"), [(0, ["walk"]), (1, ["agent", "agentic-wake", "walk"])])
async def test_what_wakes_an_agent_is_on_offer_only_where_runs_may_start_runs(
    link: NatsLink, depth: int, offered: list[str]
) -> None:
    await Executor(catalog_of("hands", "walk", "agentic-wake", "agentic-loop", "ductile-gateway")).begin(link)
    skills = NatsSkills(link, AgentSettings(limits=LimitSettings(max_depth=depth)))
    assert sorted(await names(skills)) == offered


def test_a_tool_that_is_declared_with_a_misspelt_word_is_refused_by_its_name(tmp_path: Path) -> None:
    tool = {"name": "walk", "route": "walk", "commands": [{"name": "do", "tier": "read", "aprove": "never"}]}
    with pytest.raises(Misconfigured, match=r"agent\.tools\.declared: walk: commands\.0\.aprove: is not known here"):
        load(configured(tmp_path, tools={"declared": [tool]}), {})
