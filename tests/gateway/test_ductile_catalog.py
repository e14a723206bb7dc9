"""Which of a Ductile's plugins become tools, and the settings of the way to it."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from ductile_gateway.ductile.catalog import DuctileTools, pipeline_names, read_tools, wanted, without_call_id
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.tools.catalog import ToolChoice, draw_catalog
from schemas.catalog import Catalog, ToolCommand, ToolOffer

FETCH: dict[str, Any] = {
    "name": "fetch",
    "version": "1.0",
    "description": "Gets pages.",
    "protocol": 2,
    "commands": [
        {"name": "handle", "type": "write", "description": "", "input_schema": {"type": "object"}},
        {"name": "look", "type": "read", "input_schema": {"type": "object", "additionalProperties": False}},
        {"name": "health", "type": "read", "input_schema": None},
    ],
}


def tools(*names: str, declared: Mapping[str, Any] = {}, relayed: str = "", **plugins: Any) -> DuctileTools:
    settings = {"url": "http://localhost:1", "token": "t"} | dict(declared)
    if relayed:
        settings["relay"] = {"secret": "a-relay-secret-for-tests", "routes": {relayed: None}}
    return read_tools(names, plugins, frozenset({"flow", "fetch"}), DuctileSettings.model_validate(settings))


def test_without_a_choice_nothing_is_asked_for_and_it_is_said_why() -> None:
    assert wanted(None) == frozenset()
    found = tools()
    assert not found.manifests
    assert "gateway.tools" in found.problems[0]


def test_only_what_is_chosen_is_asked_for_and_never_our_own_routes() -> None:
    choices = {"pages": ToolChoice(plugin="fetch"), "agentic-wake": ToolChoice(), "../x": ToolChoice()}
    assert wanted(choices) == {"fetch"}


def test_a_plugin_is_offered_with_its_tiers() -> None:
    found = tools("fetch", fetch=FETCH)
    catalog, _ = draw_catalog(found.manifests, {"fetch": ToolChoice()}, timeout_s=60)
    assert [(command.name, command.tier) for command in catalog.tools[0].commands] == [
        ("handle", "write"),
        ("look", "read"),
    ]


def test_effect_output_and_whether_it_continues_are_read_from_schemas_which_a_ductile_tells_as_they_are() -> None:
    told = {"type": "object", "x-effect": "local", "x-output": "untrusted", "x-continues": False}
    commands = [{"name": "handle", "type": "write", "output_schema": told}, {"name": "other", "type": "write"}]
    found = tools("fetch", fetch=FETCH | {"commands": commands})
    (offer,) = draw_catalog(found.manifests, {"fetch": ToolChoice()}, timeout_s=60)[0].tools
    assert (offer.output, [command.effect for command in offer.commands]) == ("untrusted", ["local", None])
    (relayed,) = draw_catalog(
        tools("fetch", fetch=FETCH | {"commands": commands}, relayed="fetch").manifests, None, timeout_s=60
    )[0].tools
    assert (relayed.output, [command.effect for command in relayed.commands]) == ("untrusted", ["local"])
    assert (offer.continues, relayed.continues, tools("fetch", fetch=FETCH).manifests["fetch"].continues) == (
        *(False, False),
        True,
    )


def test_a_plugin_has_the_name_under_which_it_was_asked_for() -> None:
    assert tools("fetch", fetch=FETCH | {"name": "agentic-loop"}).manifests["fetch"].name == "fetch"


def test_a_command_is_idempotent_where_the_configuration_says_so() -> None:
    manifest = tools("fetch", fetch=FETCH, declared={"idempotent": ["fetch/handle"]}).manifests["fetch"]
    assert {command.name: command.idempotent for command in manifest.commands} == {
        "handle": True,
        "look": False,
        "health": False,
    }


def test_a_declaration_for_what_is_not_there_is_a_problem() -> None:
    found = tools("fetch", fetch=FETCH, declared={"idempotent": ["fetch/hadle"]})
    assert any("fetch/hadle" in problem for problem in found.problems)


def test_a_closed_schema_keeps_the_call_id_out() -> None:
    assert tools("fetch", fetch=FETCH).closed == {("fetch", "look")}


@pytest.mark.parametrize(
    ("tier", "idempotent", "closed", "told"),
    [
        ("write", False, True, True),
        ("write", False, False, False),
        ("write", True, True, False),
        ("read", False, True, False),
    ],
)
def test_it_is_told_of_commands_on_offer_that_write_and_cannot_be_looked_up(
    tier: str, idempotent: bool, closed: bool, told: bool
) -> None:
    command = ToolCommand.model_validate({"name": "save", "tier": tier, "idempotent": idempotent})
    catalog = Catalog(revision="1", tools=(ToolOffer(name="keep", route="fetch", commands=(command,)),))
    there = DuctileTools(closed=frozenset({("fetch", "save"), ("other", "save")} if closed else ()))
    assert len(tuple(without_call_id(catalog, there))) == told


def test_a_command_with_a_name_that_is_none_is_left_out_alone() -> None:
    document = FETCH | {"commands": [*FETCH["commands"], {"name": "Handle/../x", "type": "read"}]}
    found = tools("fetch", fetch=document)
    assert len(found.manifests["fetch"].commands) == 3
    assert any("Handle/../x" in problem for problem in found.problems)


def test_a_plugin_without_a_usable_command_is_left_out() -> None:
    found = tools("fetch", fetch=FETCH | {"commands": [{"name": "handle", "type": "admin"}]})
    assert not found.manifests


@pytest.mark.parametrize("commands", [None, "handle", [7], {}])
def test_an_answer_that_makes_no_sense_is_a_problem_and_no_crash(commands: Any) -> None:
    found = tools("fetch", fetch=FETCH | {"commands": commands})
    assert not found.manifests
    assert "cannot be used" in found.problems[0]


def test_a_pipeline_is_a_tool_that_writes_unless_it_is_said_to_read() -> None:
    found = tools("flow")
    assert found.pipelines == {"flow"}
    assert [(command.name, command.type) for command in found.manifests["flow"].commands] == [("handle", "write")]
    reading = tools("flow", declared={"reading_pipelines": ["flow"]})
    assert reading.manifests["flow"].commands[0].type == "read"


def test_a_plugin_comes_before_a_pipeline_of_its_name() -> None:
    found = tools("fetch", fetch=FETCH)
    assert not found.pipelines
    assert any("same name" in problem for problem in found.problems)


@pytest.mark.parametrize("plugins", [{}, {"note": FETCH | {"commands": FETCH["commands"][1:]}}])
def test_a_route_that_is_called_by_events_is_a_tool_that_writes_whatever_there_is_of_its_name(plugins: Any) -> None:
    found = tools("note", relayed="note", **plugins)
    assert [(command.name, command.type) for command in found.manifests["note"].commands] == [("handle", "write")]
    assert (found.pipelines, found.closed, found.problems) == (frozenset(), frozenset(), ())


def test_a_plugin_of_the_name_of_a_route_describes_it_and_does_not_say_whether_it_writes() -> None:
    handle = {"name": "handle", "type": "read", "input_schema": {"type": "object", "additionalProperties": False}}
    plugin = FETCH | {"commands": [handle, *FETCH["commands"][1:]]}
    found = tools("fetch", relayed="fetch", fetch=plugin)
    manifest = found.manifests["fetch"]
    assert manifest.description == "Gets pages."
    assert [(one.name, one.type, one.input_schema) for one in manifest.commands] == [
        ("handle", "write", handle["input_schema"])
    ]
    assert (found.closed, found.problems) == (frozenset(), ())


def test_a_route_that_is_called_by_events_reads_or_is_idempotent_where_the_configuration_says_so() -> None:
    reading = {"reading_pipelines": ["note"]}
    assert tools("note", relayed="note", declared=reading).manifests["note"].commands[0].type == "read"
    repeatable = {"idempotent": ["note/handle"]}
    found = tools("note", relayed="note", declared=repeatable)
    assert found.manifests["note"].commands[0].idempotent
    assert not found.problems


def test_a_route_that_no_tool_is_called_by_is_a_problem() -> None:
    found = tools("flow", relayed="note")
    assert found.manifests.keys() == {"flow"}
    assert found.problems == ("gateway.ductile.relay.routes names note, which no tool of gateway.tools is called by",)


def test_pipelines_are_told_from_plugins_in_the_skills() -> None:
    skills: dict[str, Any] = {
        "skills": [{"kind": "plugin", "plugin": "a"}, {"kind": "pipeline", "pipeline": "flow"}, 7]
    }
    assert pipeline_names(skills) == {"flow"}
    assert pipeline_names({}) == frozenset()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:1", "https://far.example"]
)
def test_a_token_may_go_over_tls_or_stay_on_the_machine(url: str) -> None:
    assert DuctileSettings.model_validate({"url": url, "token": "t"}).url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://far.example",
        "http://10.0.0.2:8080",
        "ftp://localhost",
        "http://",
        "http://u@localhost",
        "x",
        "http://localhost/?a",
    ],
)
def test_an_address_that_would_give_the_token_away_is_refused(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        DuctileSettings.model_validate({"url": url, "token": "secret-token"})
    assert "secret-token" not in str(caught.value)


def test_plain_http_to_another_machine_can_be_allowed() -> None:
    settings = {"url": "http://far.example", "token": "t", "allow_http_nonloopback": True}
    assert DuctileSettings.model_validate(settings).allow_http_nonloopback


@pytest.mark.parametrize("token", ["line\nbreak", "ümlaut"])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    with pytest.raises(ValidationError):
        DuctileSettings.model_validate({"url": "http://localhost", "token": token})
