"""Executors are discovered on the bus; their offers become one list under the operator's rules; limits are granted."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_service.admission.limits import LimitPolicy
from agent_service.bus.skills import ExecutorOffers, NatsSkills, merge, read_answer, ruled, undeclared, unoffered
from agent_service.errors import LimitRefused
from agent_service.settings import AgentSettings, LimitSettings, ToolsSettings, load
from ductile_gateway.bus.incoming import answer_catalog, serve_endpoints
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured
from schemas import subjects
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from schemas.events import Constraints
from schemas.status import GatewayStatus
from tests.cli.stores import configured
from tests.core.script import NOON
from tests.kit.waiting import until

Merged = tuple[dict[str, ToolOffer], tuple[str, ...]]
"""Offers by name, and conflicts."""
ONE, OTHER = {"name": "say", "tier": "read"}, {"name": "say", "tier": "write"}


def tool(name: str = "talk", command: dict[str, Any] = ONE) -> dict[str, Any]:
    return {"name": name, "route": name, "commands": [command]}


def told(executor: str | None, *tools: Any) -> ExecutorOffers:
    return read_answer(json.dumps({"executor": executor, "tools": tools}).encode())


def merged(*answers: ExecutorOffers, before: Merged | None = None, silent: str = "") -> Merged:
    present = frozenset(answer.executor for answer in answers) - {silent}
    return merge(answers, before[0] if before else {}, present)


def owners(result: Merged) -> dict[str, Any]:
    return {name: offer.executor for name, offer in result[0].items()}


def test_offers_of_several_executors_stand_side_by_side_sorted_by_name() -> None:
    result = merged(told("b", tool("walk")), told("a", tool("talk")), told(None, tool("sing")))
    assert list(owners(result).items()) == [("sing", "unnamed"), ("talk", "a"), ("walk", "b")]
    assert result[1] == ()


def test_different_tools_of_one_name_are_told_with_both_executors_and_the_first_keeps_it() -> None:
    first = merged(told("b", tool()), told("a", tool(command=OTHER)))
    turned = merged(told("a", tool(command=OTHER)), told("b", tool()), before=first)
    for result in (first, turned):
        assert (owners(result), result[0]["talk"].commands[0].tier) == ({"talk": "b"}, "read")
        (conflict,) = result[1]
        assert "tool talk of a is left out: b offered another" in conflict
    (conflict,) = merged(told("a", tool(), tool(command=OTHER)))[1]
    assert "give all processes of that executor the same tools" in conflict


@pytest.mark.parametrize(("stand_in", "owner"), [(ONE, "b"), (OTHER, "a")])
def test_a_silent_executor_keeps_its_tool_unless_another_offers_just_the_same(
    stand_in: dict[str, Any], owner: str
) -> None:
    answers = told("a", tool()), told("b", tool(command=stand_in))
    assert owners(merged(*answers, before=merged(*answers), silent="a")) == {"talk": owner}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (tool("Not A Name"), "'Not A Name', which is left out: name: must be a name"),
        (tool("talk") | {"commands": []}, "commands"),
        (tool(command=ONE | {"input_schema": {"type": "objekt"}}), "the input_schema of command say"),
        (tool() | {"timeout_s": "NaN"}, "timeout_s"),
        ("talk", "'talk'"),
        (None, "None"),
    ],
)
def test_one_bad_offer_is_left_out_alone_and_told_with_its_executor(bad: Any, says: str) -> None:
    answer = told("shop", tool("walk"), bad)
    (flaw,) = answer.flaws
    assert [offer.name for offer in answer.offers] == ["walk"]
    assert (flaw.startswith("shop offers "), says in flaw) == (True, True)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"tools": 1}', b'{"tools": [], "executor": "Not A Name"}', b"\xff"]
)
def test_what_is_no_catalog_is_told_as_such(body: bytes) -> None:
    answer = read_answer(body)
    assert (answer.offers, "not a catalog of tools" in answer.flaws[0]) == ((), True)


MAIL = ToolOffer(
    name="mail",
    route="mail",
    commands=(ToolCommand(name="send", tier="write", approve="never"), ToolCommand(name="list", tier="read")),
)
LIST = MAIL.commands[1]


@pytest.mark.parametrize(
    ("says", "approve", "output", "of_list"),
    [
        (AgentSettings(approve={"mail": "untrusted", "mail.send": "always"}), ("always", "untrusted"), None, None),
        (AgentSettings(approve={"mail.list": "always", "other": "always"}), ("never", "always"), None, None),
        (AgentSettings(approve={"other": "always"}, untrusted=("other",)), ("never", LIST.approve), None, None),
        (AgentSettings(untrusted=("mail",)), ("never", LIST.approve), "untrusted", None),
        (AgentSettings(trusted=("mail",)), ("never", LIST.approve), "trusted", None),
        (AgentSettings(trusted=("mail.list",)), ("never", LIST.approve), None, "trusted"),
        (
            AgentSettings(trusted=("mail",), untrusted=("mail",)),
            ("never", LIST.approve),
            "untrusted",
            None,
        ),
    ],
)
def test_the_word_of_the_operator_comes_before_the_offer_and_that_on_a_command_before_that_on_its_tool(
    says: AgentSettings, approve: tuple[str | None, ...], output: str | None, of_list: str | None
) -> None:
    offer = ruled(says, MAIL)
    assert tuple(command.approve for command in offer.commands) == approve
    assert (offer.output, [command.output for command in offer.commands]) == (output, [None, of_list])
    assert undeclared([offer]) == (() if output else ("mail",))


def test_a_command_that_calls_its_output_trusted_does_not_overrule_the_operator() -> None:
    trusting = MAIL.model_copy(update={"commands": (LIST.model_copy(update={"output": "trusted"}),)})
    assert ruled(AgentSettings(untrusted=("mail",)), trusting).commands[0].output == "untrusted"
    assert ruled(AgentSettings(), trusting).commands[0].output == "trusted"


def test_tools_that_nobody_offers_are_told() -> None:
    assert unoffered(AgentSettings(trusted=("mial",)), [MAIL], ()) == (
        "agent.approve, agent.untrusted or agent.trusted names mial",
    )


def test_an_approval_of_no_tool_is_refused_with_what_to_write() -> None:
    with pytest.raises(Misconfigured, match=r"AGENT_APPROVE: .*{mail\.send: always\}"):
        load(None, {"AGENT_APPROVE": "always"})


def policy(**given: Any) -> LimitPolicy:
    return LimitPolicy(AgentSettings(limits=LimitSettings(**given)))


POLICY = policy(wall_clock_s=600.0)
CAPPED = policy(cap_tokens=1000, cap_cost_usd=2.0, max_cost_usd=3.0, max_context_bytes=100)
SMALL = policy(max_context_bytes=len('{"a":"é"}'.encode()))
IN_TWO_DAYS = NOON + timedelta(days=2)


@pytest.mark.parametrize(
    ("by", "context", "constraints", "granted"),
    [
        (POLICY, {}, {}, {"max_steps": 10, "max_reframes": 2, "deadline_at": NOON + timedelta(minutes=10)}),
        (POLICY, {"max_steps": 6}, {}, {"max_steps": 6}),
        (POLICY, {"max_steps": 6}, {"max_steps": 4}, {"max_steps": 4}),
        (POLICY, {}, {"max_reframes": 0, "max_tokens": 5}, {"max_reframes": 0, "max_tokens": 5}),
        (POLICY, {}, {"max_cost_usd": 0.5, "deadline_at": IN_TWO_DAYS}, {"deadline_at": IN_TWO_DAYS}),
        (CAPPED, {}, {"max_loops": 20, "max_tokens": 1000}, {"max_steps": 20, "max_tokens": 1000, "max_cost_usd": 2.0}),
        (CAPPED, {}, {}, {"max_tokens": 1000, "max_cost_usd": 2.0}),
        (policy(max_reframes=15), {}, {"max_reframes": 12}, {"max_reframes": 12}),
        (SMALL, {"a": "é"}, {}, {}),
    ],
)
def test_what_is_asked_for_is_granted_up_to_the_caps_and_the_defaults_else(
    by: LimitPolicy, context: dict[str, Any], constraints: dict[str, Any], granted: dict[str, Any]
) -> None:
    limits = by.grant(Constraints(**constraints), context=context, at=NOON)
    assert {name: getattr(limits, name) for name in granted} == granted


@pytest.mark.parametrize(
    ("field", "context", "constraints"),
    [
        *(("context.max_steps", {"max_steps": number}, {}) for number in ("6", 0, -1, 2.5, True, [6], 21)),
        ("context", {"a": "é" * 1000}, {}),
        ("constraints.max_steps", {}, {"max_steps": 21}),
        ("constraints.max_loops", {}, {"max_loops": 21}),
        ("constraints.max_tokens", {}, {"max_tokens": 1001}),
        ("constraints.max_cost_usd", {}, {"max_cost_usd": 2.1}),
        ("constraints.max_reframes", {}, {"max_reframes": 11}),
        ("constraints.deadline_at", {}, {"deadline_at": NOON}),
        ("constraints.deadline_at", {}, {"deadline_at": NOON - timedelta(seconds=1)}),
        ("constraints.deadline_at", {}, {"deadline_at": NOON + timedelta(days=31)}),
    ],
)
def test_what_is_beyond_is_refused_by_the_field_that_the_caller_used(
    field: str, context: dict[str, Any], constraints: dict[str, Any]
) -> None:
    with pytest.raises(LimitRefused) as refusal:
        CAPPED.grant(Constraints(**constraints), context=context, at=NOON)
    assert refusal.value.field == field


def catalog_of(executor: str | None, *names: str) -> bytes:
    tools = [{"name": name, "route": name, "commands": [{"name": "do", "tier": "read"}]} for name in names]
    return json.dumps({"executor": executor, "tools": tools}).encode()


class Executor:
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
