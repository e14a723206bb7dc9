"""The catalog of tools from plugins and Ductiles, its problems, and the check of arguments."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from ductile_gateway.calls.call import CALL_ID, ToolOutcome
from ductile_gateway.ductile.catalog import DuctileTools, read_tools, wanted
from ductile_gateway.ductile.runner import with_correlation
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.plugins.manifest import PluginManifest, read_manifest
from ductile_gateway.tools.catalog import ToolChoice, make_catalog
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from schemas.events import ToolRequest
from tests.gateway.parts import CATALOG, NOON, a_request, asked_for, offering


def a_manifest(name: str, *commands: dict[str, Any], **more: Any) -> PluginManifest:
    kind = {"manifest_spec": "ductile.plugin", "manifest_version": 1, "protocol": 2, "version": "1"}
    about = {"name": name, "entrypoint": "run.py", "description": f"What {name} does."}
    return read_manifest(kind | about | {"commands": list(commands) or [{"name": "handle", "type": "read"}]} | more)


READER = a_manifest(
    "jina-reader",
    {"name": "poll", "type": "write", "idempotent": True},
    {"name": "handle", "type": "read", "input_schema": {"url": "string"}},
)
FABRIC = a_manifest("fabric")


def drawn(*manifests: PluginManifest, choices: dict[str, ToolChoice] | None = None) -> tuple[Catalog, tuple[str, ...]]:
    return make_catalog({manifest.name: manifest for manifest in manifests}, choices, timeout_s=60)


def offered(*manifests: PluginManifest, choices: dict[str, ToolChoice] | None = None) -> dict[str, list[str]]:
    catalog, _ = drawn(*manifests, choices=choices)
    return {tool.name: [command.name for command in tool.commands] for tool in catalog.tools}


def effects(tool: ToolOffer) -> dict[str, str | None]:
    return {command.name: command.effect for command in tool.commands}


def test_without_a_choice_every_plugin_is_a_tool_with_all_of_its_commands_and_our_own_routes_are_none() -> None:
    catalog, problems = drawn(READER, FABRIC, a_manifest("agentic-wake"), a_manifest("agentic-loop"))
    fabric, reader = catalog.tools
    assert (fabric.name, reader.name, reader.route, reader.timeout_s) == ("fabric", "jina-reader", "jina-reader", 60)
    handle, poll = reader.commands
    assert (handle.name, handle.tier, handle.idempotent) == ("handle", "read", False)
    assert handle.input_schema == {"type": "object", "properties": {"url": {"type": "string"}}}
    assert (poll.name, poll.tier, poll.idempotent) == ("poll", "write", True)
    assert (len(problems), drawn(READER, FABRIC)[1]) == (2, ())


def test_a_choice_names_the_tool_and_cuts_it_to_some_commands() -> None:
    choice = ToolChoice(plugin="jina-reader", commands=frozenset({"handle"}), description="Reads the web.", timeout_s=5)
    (fetch,) = drawn(READER, FABRIC, choices={"fetch": choice})[0].tools
    told = (fetch.name, fetch.route, fetch.description, fetch.timeout_s, list(effects(fetch)))
    assert told == ("fetch", "jina-reader", "Reads the web.", 5, ["handle"])
    assert offered(READER, choices={}) == {}
    twice = {name: ToolChoice(plugin="jina-reader") for name in ("fetch", "browse")}
    assert list(offered(READER, choices=twice)) == ["browse", "fetch"]


def test_effect_and_output_are_as_the_plugin_declares_them_unless_the_configuration_says_otherwise() -> None:
    post = {"name": "post", "type": "write"}
    mail = a_manifest("mail", {"name": "draft", "type": "write", "effect": "local"}, post, output="untrusted")
    (declared,) = drawn(mail, a_manifest("plain"))[0].tools[:1]
    assert (declared.output, effects(declared)) == ("untrusted", {"draft": "local", "post": None})
    (chosen,) = drawn(mail, choices={"mail": ToolChoice(effect="external", output="trusted")})[0].tools
    assert (chosen.output, effects(chosen)) == ("trusted", {"draft": "external", "post": "external"})
    (plain,) = drawn(a_manifest("plain"))[0].tools
    assert (plain.output, plain.continues) == (None, True)
    assert not drawn(a_manifest("plain", continues=False))[0].tools[0].continues


@pytest.mark.parametrize(
    ("name", "choice", "problem"),
    [
        ("fetch", ToolChoice(), "no plugin fetch"),
        ("fetch", ToolChoice(plugin="reader"), "no plugin reader"),
        ("jina-reader", ToolChoice(commands=frozenset({"read"})), "no command read"),
        ("ask", ToolChoice(plugin="agentic-wake"), "start an agent"),
        ("agentic-loop", ToolChoice(plugin="jina-reader"), "start an agent"),
    ],
)
def test_a_choice_that_cannot_be_had_is_left_out_with_the_reason(name: str, choice: ToolChoice, problem: str) -> None:
    catalog, (told,) = drawn(READER, a_manifest("agentic-wake"), choices={name: choice})
    assert (catalog.tools, problem in told) == ((), True)


URL = {"url": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"url": "string"}, URL),
        ({"properties": URL}, URL),
        ({"properties": {"type": "integer"}}, {"properties": {"type": "integer"}}),
        ({"url": "text"}, "properties/url/type: must be string, number, "),
        ({"url": 5}, "properties/url: 5 is not "),
        ({"type": "string", "url": "string"}, "its type must be object"),
    ],
)
def test_a_schema_describes_an_object_in_the_short_or_the_full_form(schema: dict[str, Any], found: Any) -> None:
    catalog, problems = drawn(a_manifest("tool", {"name": "go", "type": "read", "input_schema": schema}))
    if isinstance(found, str):
        assert found in problems[0]
    else:
        assert catalog.tools[0].commands[0].input_schema == {"type": "object", "properties": found}


@pytest.mark.parametrize(
    "flaw",
    [
        {"type": "objekt"},
        {"pattern": "("},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"default": float("nan")},
    ],
)
def test_a_command_whose_schema_cannot_be_used_is_left_out_and_the_others_stay(flaw: dict[str, Any]) -> None:
    bad = {"name": "bad", "type": "read", "input_schema": {"type": "object", "properties": {"a": flaw}}}
    assert offered(a_manifest("tool", bad, {"name": "good", "type": "read"})) == {"tool": ["good"]}
    catalog, (problem,) = drawn(a_manifest("tool", bad))
    assert (catalog.tools, "command bad" in problem) == ((), True)


STRICT = {"type": "object", "properties": {"query": {"type": "string"}}, "additionalProperties": False}
READS_EVIDENCE = {"type": "object", "properties": {"evidence": {"type": "string"}}}


def of_evidence(schema: dict[str, Any], of: tuple[str, int] | None) -> tuple[ToolRequest, Catalog]:
    commands = (ToolCommand(name="c", tier="read", input_schema=schema),)
    offer = ToolOffer(name="t", route="jina-reader", commands=commands)
    payload = {"evidence": [{"result": {}}], "continuations": 1, "continuations_left": 2}
    task, number = of or (None, None)
    return a_request("c", payload, tool="t", task=task, round=number), Catalog(tools=(offer,))


@pytest.mark.parametrize(
    ("request_", "catalog", "flaw"),
    [
        (a_request(payload={"url": "x", "more": 1}), CATALOG, None),
        (a_request(payload={}), CATALOG, "url"),
        (a_request(payload={"url": 5}), CATALOG, "url: 5 is not of type"),
        (a_request(payload={"url": ["x" * 100_000]}), CATALOG, "url: "),
        (a_request("save", {"any": 1}), CATALOG, None),
        (a_request("unheard-of"), CATALOG, None),
        (a_request(tool="other"), CATALOG, None),
        # Evidence is held against a schema that knows it, and is no argument of any other.
        (*of_evidence(STRICT, ("task-1", 2)), None),
        (*of_evidence(STRICT, None), "evidence"),
        (*of_evidence(READS_EVIDENCE, ("task-1", 2)), "evidence"),
    ],
)
def test_a_flaw_of_arguments_says_shortly_where_it_is_and_without_a_schema_there_is_none(
    request_: ToolRequest, catalog: Catalog, flaw: str | None
) -> None:
    found = offering(catalog).admit(asked_for(request_), now=NOON)
    told = found.message or "" if isinstance(found, ToolOutcome) else ""
    assert told.startswith("arguments of") is (flaw is not None)
    assert (flaw or "") in told
    assert len(told) < 1000


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


def of_ductile(*names: str, relayed: str = "", **plugins: Mapping[str, Any]) -> DuctileTools:
    """Tools of a Ductile's plugins; one is called by events."""
    settings: dict[str, Any] = {"url": "http://localhost:1", "token": "a-token-for-tests"}
    if relayed:
        settings["relay"] = {"secret": "a-relay-secret-for-tests", "routes": {relayed: None}}
    return read_tools(names, plugins, frozenset({"flow", "fetch"}), DuctileSettings.model_validate(settings))


def test_a_plugin_of_a_ductile_is_offered_with_its_tiers_and_only_if_it_is_chosen() -> None:
    assert (wanted(None), of_ductile().manifests) == (frozenset(), {})
    assert "gateway.tools" in of_ductile().problems[0]
    (fetch,) = make_catalog(of_ductile("fetch", fetch=FETCH).manifests, {"fetch": ToolChoice()}, timeout_s=60)[0].tools
    assert [(one.name, one.tier) for one in fetch.commands] == [("handle", "write"), ("look", "read")]


def test_effect_output_and_whether_it_continues_are_read_from_schemas_which_a_ductile_tells_as_they_are() -> None:
    told = {"type": "object", "x-effect": "local", "x-output": "untrusted", "x-continues": False}
    both = [{"name": "handle", "type": "write", "output_schema": told}, {"name": "other", "type": "write"}]
    for relayed, expected in (("", ["local", None]), ("fetch", ["local"])):
        found = of_ductile("fetch", relayed=relayed, fetch=FETCH | {"commands": both})
        choices = None if relayed else {"fetch": ToolChoice()}
        (offer,) = make_catalog(found.manifests, choices, timeout_s=60)[0].tools
        assert (offer.output, [command.effect for command in offer.commands]) == ("untrusted", expected)
        assert not offer.continues
    assert of_ductile("fetch", fetch=FETCH).manifests["fetch"].continues


def test_results_count_as_trusted_only_if_each_command_that_agents_call_says_so() -> None:
    trusted, silent = ({"output_schema": schema} for schema in ({"x-output": "trusted"}, dict[str, str]()))
    for health, other, expected in ((silent, trusted, "trusted"), (trusted, silent, None)):
        commands = [{"name": "health", "type": "read"} | health, {"name": "look", "type": "read"} | other]
        commands.append({"name": "handle", "type": "read"} | trusted)
        assert of_ductile("fetch", fetch=FETCH | {"commands": commands}).manifests["fetch"].output == expected


FAR = "http://far.example http://10.0.0.2:8080 ftp://localhost http:// http://u@localhost x http://localhost/?a"


@pytest.mark.parametrize("url", FAR.split())
def test_an_address_that_would_give_the_token_away_is_refused(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        DuctileSettings.model_validate({"url": url, "token": "secret-token"})
    assert "secret-token" not in str(caught.value)


def test_a_call_by_event_carries_its_proof_where_pipelines_find_it_and_arguments_do_not_change_it() -> None:
    proved, bare = (asked_for(a_request().model_copy(update={"capability": one})) for one in ("k1.first", None))
    payload, baggage = with_correlation(proved, {"url": "x", "capability": "k2.newer", CALL_ID: "call"})
    assert payload["capability"] == baggage["capability"] == "k1.first"
    assert "capability" not in with_correlation(bare, {"capability": "k2.newer"})[0]
