"""Under the operator's rules, offers of several executors become one list, and limits of callers are granted."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agent_service.admission.granting import LimitPolicy, LimitRefused, grant
from agent_service.bus.skills import ExecutorOffers, merge, read_answer
from agent_service.settings import LimitSettings, load
from agent_service.trust.oversight import Oversight, undeclared
from groundwork.service.errors import Misconfigured
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import Constraints
from tests.core.cues import limits
from tests.core.script import NOON

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
SEND, LIST = MAIL.commands


@pytest.mark.parametrize(
    ("says", "approve", "output", "of_list"),
    [
        (Oversight(approve={"mail": "untrusted", "mail.send": "always"}), ("always", "untrusted"), None, None),
        (Oversight(approve={"mail.list": "always", "other": "always"}), ("never", "always"), None, None),
        (Oversight(approve={"other": "always"}, untrusted=frozenset({"other"})), ("never", LIST.approve), None, None),
        (Oversight(untrusted=frozenset({"mail"})), ("never", LIST.approve), "untrusted", None),
        (Oversight(trusted=frozenset({"mail"})), ("never", LIST.approve), "trusted", None),
        (Oversight(trusted=frozenset({"mail.list"})), ("never", LIST.approve), None, "trusted"),
        (
            Oversight(trusted=frozenset({"mail"}), untrusted=frozenset({"mail"})),
            ("never", LIST.approve),
            "untrusted",
            None,
        ),
    ],
)
def test_the_word_of_the_operator_comes_before_the_offer_and_that_on_a_command_before_that_on_its_tool(
    says: Oversight, approve: tuple[str | None, ...], output: str | None, of_list: str | None
) -> None:
    ruled = says.over(MAIL)
    assert tuple(command.approve for command in ruled.commands) == approve
    assert (ruled.output, [command.output for command in ruled.commands]) == (output, [None, of_list])
    assert undeclared([ruled]) == (() if output else ("mail",))


def test_a_command_that_calls_its_output_trusted_does_not_overrule_the_operator() -> None:
    trusting = MAIL.model_copy(update={"commands": (LIST.model_copy(update={"output": "trusted"}),)})
    assert Oversight(untrusted=frozenset({"mail"})).over(trusting).commands[0].output == "untrusted"
    assert Oversight().over(trusting).commands[0].output == "trusted"


def test_tools_that_nobody_offers_are_told() -> None:
    assert Oversight(trusted=frozenset({"mial"})).unknown([MAIL]) == ("mial",)


def test_an_approval_of_no_tool_is_refused_with_what_to_write() -> None:
    with pytest.raises(Misconfigured, match=r"AGENT_APPROVE: .*{mail\.send: always\}"):
        load(None, {"AGENT_APPROVE": "always"})


POLICY = LimitPolicy(defaults=limits(max_steps=10, max_reframes=2), wall_clock_s=600.0)
CAPPED = replace(LimitSettings(cap_tokens=1000, cap_cost_usd=2.0, max_cost_usd=3.0).policy(), cap_context_bytes=100)
SMALL = replace(POLICY, cap_context_bytes=len('{"a":"é"}'.encode()))
IN_TWO_DAYS = NOON + timedelta(days=2)


@pytest.mark.parametrize(
    ("policy", "context", "constraints", "granted"),
    [
        (POLICY, {}, {}, {"max_steps": 10, "max_reframes": 2, "deadline_at": NOON + timedelta(minutes=10)}),
        (POLICY, {"max_steps": 6}, {}, {"max_steps": 6}),
        (POLICY, {"max_steps": 6}, {"max_steps": 4}, {"max_steps": 4}),
        (POLICY, {}, {"max_reframes": 0, "max_tokens": 5}, {"max_reframes": 0, "max_tokens": 5}),
        (POLICY, {}, {"max_cost_usd": 0.5, "deadline_at": IN_TWO_DAYS}, {"deadline_at": IN_TWO_DAYS}),
        (CAPPED, {}, {"max_loops": 20, "max_tokens": 1000}, {"max_steps": 20, "max_tokens": 1000, "max_cost_usd": 2.0}),
        (CAPPED, {}, {}, {"max_tokens": 1000, "max_cost_usd": 2.0}),
        (LimitSettings(max_reframes=15).policy(), {}, {"max_reframes": 12}, {"max_reframes": 12}),
        (SMALL, {"a": "é"}, {}, {}),
    ],
)
def test_what_is_asked_for_is_granted_up_to_the_caps_and_the_defaults_else(
    policy: LimitPolicy, context: dict[str, Any], constraints: dict[str, Any], granted: dict[str, Any]
) -> None:
    limits = grant(policy, Constraints(**constraints), context=context, at=NOON)
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
        grant(CAPPED, Constraints(**constraints), context=context, at=NOON)
    assert refusal.value.field == field
