"""Which of a Ductile's plugins become tools, and the settings of the way to it."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from ductile_gateway.ductile.catalog import DuctileTools, read_tools, wanted
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.tools.catalog import ToolChoice, draw_catalog

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


@pytest.mark.parametrize("commands", [None, "handle", [7], {}])
def test_an_answer_that_makes_no_sense_is_a_problem_and_no_crash(commands: Any) -> None:
    found = tools("fetch", fetch=FETCH | {"commands": commands})
    assert not found.manifests
    assert "cannot be used" in found.problems[0]


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
