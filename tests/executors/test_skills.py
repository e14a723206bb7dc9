"""The agent hears every executor that answers on the bus, and knows which of them are there."""

import json
import re
from contextlib import nullcontext
from typing import Any

import pytest
from nats.micro import add_service

from agent_service.bus.skills import NatsSkills
from agent_service.oversight import Oversight
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured, TryAgain
from schemas import agent_tool, subjects
from schemas.argument_schemas import schema_flaw
from schemas.catalog import ToolOffer
from tests.kit.waiting import until


def catalog_of(executor: str | None, *names: str, tier: str = "read") -> bytes:
    tools = [{"name": name, "route": name, "commands": [{"name": "do", "tier": tier}]} for name in names]
    return json.dumps({"executor": executor, "tools": tools}).encode()


class Executor:
    """Answers for its tools, while it is there; `asked` counts the questions."""

    def __init__(self, answer: bytes) -> None:
        self.answer: bytes | None = answer
        self.asked = 0

    async def begin(self, link: NatsLink) -> "Executor":
        await link.subscribe(subjects.CATALOG, self._tell)
        await link.client.flush()
        return self

    async def _tell(self, message: Any) -> None:
        self.asked += 1
        if self.answer is not None:
            await message.respond(self.answer)


@pytest.fixture
def skills(link: NatsLink) -> NatsSkills:
    return NatsSkills(link, allow=None, schema_flaw=schema_flaw, fresh_s=0.0)


async def names(skills: NatsSkills) -> list[str]:
    return [tool.name for tool in (await skills.catalog()).tools]


async def test_every_executor_is_heard_and_known_to_be_there(link: NatsLink, skills: NatsSkills) -> None:
    for number in range(5):
        await Executor(catalog_of(f"executor-{number}", f"tool-{number}")).begin(link)
    assert await names(skills) == [f"tool-{number}" for number in range(5)]
    assert skills.present() == {f"executor-{number}" for number in range(5)}


async def test_a_name_in_agent_tools_that_nobody_offers_is_told_once(
    link: NatsLink, caplog: pytest.LogCaptureFixture
) -> None:
    await Executor(catalog_of("hands", "walk")).begin(link)
    ruled = Oversight(approve={"walk": "always", "walk.rnu": "never"}, untrusted=frozenset({"wlak"}))
    skills = NatsSkills(link, allow=("walk", "wlak"), schema_flaw=schema_flaw, oversight=ruled, fresh_s=0.0)
    for _ in range(2):
        assert await names(skills) == ["walk"]
    assert [vars(record)["why"] for record in caplog.records if "nobody offers" in record.message] == [
        "agent.approve, agent.untrusted or agent.trusted names walk.rnu, wlak; agent.tools names wlak"
    ]


async def test_before_anybody_has_told_its_tools_no_name_of_the_settings_is_called_unknown(
    link: NatsLink, caplog: pytest.LogCaptureFixture
) -> None:
    ruled = Oversight(approve={"walk": "always", "swim": "always"})
    skills = NatsSkills(link, allow=None, schema_flaw=schema_flaw, oversight=ruled, fresh_s=0.0)
    with pytest.raises(TryAgain):
        await skills.catalog()
    assert (skills.complaints, caplog.records) == ((), [])
    await Executor(catalog_of("hands", "walk")).begin(link)
    await names(skills)
    assert skills.complaints == ("agent.approve, agent.untrusted or agent.trusted names swim, which nobody offers",)


async def test_a_tool_that_the_settings_declare_is_offered_beside_those_of_executors_and_checked_as_theirs(
    link: NatsLink,
) -> None:
    walk, flawed = json.loads(catalog_of(None, "walk", "talk"))["tools"]
    flawed["commands"][0]["input_schema"] = {"type": "nonsense"}
    skills = NatsSkills(link, allow=None, schema_flaw=schema_flaw, declared=(walk, flawed), fresh_s=0.0)
    assert await names(skills) == ["walk"]
    assert skills.present() == {"unnamed"}
    assert "unnamed offers 'talk', which is left out: the input_schema of command do" in skills.problems[0]
    await Executor(catalog_of("hands", "swim")).begin(link)
    assert await names(skills) == ["swim", "walk"]


@pytest.mark.parametrize(
    ("allow", "why"),
    [
        (("wlak",), "agent.tools names wlak, which nobody offers: did you mean walk?"),
        (("talk", "wlak"), "did you mean walk"),
        (("walk", "wlak"), ""),
        (("swim",), ""),
        (("walk",), ""),
        (None, ""),
    ],
    ids=["misspelt", "one of two", "a name like one that is meant itself", "a name of its own", "offered", "all"],
)
async def test_a_misspelt_name_is_refused_and_one_of_its_own_may_be_that_of_an_executor_that_is_away(
    link: NatsLink, allow: tuple[str, ...] | None, why: str
) -> None:
    await Executor(catalog_of("hands", "walk", "talk")).begin(link)
    skills = NatsSkills(link, allow=allow, schema_flaw=schema_flaw)
    with pytest.raises(Misconfigured, match=re.escape(why)) if why else nullcontext():
        await skills.refuse_misspelt()


async def test_nobody_who_answers_refuses_nothing(link: NatsLink) -> None:
    await NatsSkills(link, allow=("wlak",), schema_flaw=schema_flaw).refuse_misspelt(within_s=0.0)


async def test_an_executor_that_falls_silent_keeps_its_tools_and_is_known_to_be_away(
    link: NatsLink, skills: NatsSkills
) -> None:
    await Executor(catalog_of("stays", "walk")).begin(link)
    leaves = await Executor(catalog_of("leaves", "talk")).begin(link)
    assert await names(skills) == ["talk", "walk"]
    leaves.answer = None
    assert await names(skills) == ["talk", "walk"]
    assert skills.present() == {"stays"}


async def test_one_that_comes_later_is_heard_at_the_next_asking(link: NatsLink, skills: NatsSkills) -> None:
    await Executor(catalog_of("early", "walk")).begin(link)
    assert await names(skills) == ["walk"]
    await Executor(catalog_of("late", "talk")).begin(link)
    await names(skills)
    await until(lambda: skills.present() == {"early", "late"})
    assert await names(skills) == ["talk", "walk"]


async def test_executors_that_forgot_their_name_all_count(link: NatsLink, skills: NatsSkills) -> None:
    await Executor(catalog_of(None, "walk")).begin(link)
    await Executor(catalog_of(None, "talk")).begin(link)
    for _ in range(2):
        assert await names(skills) == ["talk", "walk"]
    assert skills.present() == {"unnamed"}


async def test_an_illegal_name_stops_nothing_but_its_own_offer_and_is_told(link: NatsLink, skills: NatsSkills) -> None:
    await Executor(catalog_of("shop", "Not A Name", "walk")).begin(link)
    assert await names(skills) == ["walk"]
    assert "shop offers 'Not A Name', which is left out" in skills.problems[0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "is ductile-gateway running.* have to be declared in agent.tools.declared"),
        (catalog_of("shop", "Not A Name"), "shop offers 'Not A Name', which is left out: name"),
        (b"hello", "an answer is no catalog of tools"),
    ],
)
async def test_without_any_tool_the_true_reason_is_said(
    link: NatsLink, skills: NatsSkills, answer: bytes | None, reason: str
) -> None:
    if answer is not None:
        await Executor(answer).begin(link)
    with pytest.raises(TryAgain, match=reason):
        await skills.catalog()


async def test_an_answer_that_is_no_catalog_takes_nothing_from_who_answered_before(
    link: NatsLink, skills: NatsSkills
) -> None:
    shop = await Executor(catalog_of(None, "walk")).begin(link)
    await names(skills)
    shop.answer = b"hello"
    assert await names(skills) == ["walk"]


async def test_the_executors_are_asked_once_in_a_while_only(link: NatsLink) -> None:
    skills = NatsSkills(link, allow=None, schema_flaw=schema_flaw, fresh_s=60.0)
    shop = await Executor(catalog_of("shop", "walk")).begin(link)
    for _ in range(3):
        await names(skills)
    assert shop.asked == 1


async def test_what_the_agent_may_not_use_is_not_even_a_conflict(link: NatsLink) -> None:
    skills = NatsSkills(link, allow=("walk",), schema_flaw=schema_flaw)
    await Executor(catalog_of("a", "walk", "talk")).begin(link)
    await Executor(catalog_of("b", "talk", tier="write")).begin(link)
    assert await names(skills) == ["walk"]
    assert skills.problems == ()


@pytest.mark.parametrize(
    ("own", "offered"), [((), ["walk"]), ((agent_tool.offer(),), ["agent", "agentic-wake", "walk"])]
)
async def test_what_wakes_an_agent_is_on_offer_only_where_runs_may_start_runs(
    link: NatsLink, own: tuple[ToolOffer, ...], offered: list[str]
) -> None:
    await Executor(catalog_of("hands", "walk", "agentic-wake", "agentic-loop", "ductile-gateway")).begin(link)
    skills = NatsSkills(link, allow=None, schema_flaw=schema_flaw, own=own)
    assert sorted(await names(skills)) == offered


async def test_executors_that_are_micro_services_stand_beside_the_gateway(link: NatsLink, skills: NatsSkills) -> None:
    """They sit in one queue group unless they say otherwise, so that one of them answers: each sooner or later."""
    for name in ("shop", "mill"):
        service = await add_service(link.client, name=name, version="1.0.0")

        async def tell(request: Any, answer: bytes = catalog_of(name, f"{name}-tool")) -> None:
            await request.respond(answer)

        await service.add_endpoint(name="catalog", subject=subjects.CATALOG, handler=tell)
    await link.client.flush()

    async def both() -> bool:
        return await names(skills) == ["mill-tool", "shop-tool"]

    await until(both)
