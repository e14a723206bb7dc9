"""Which tools are on offer, why some are not, and how arguments are checked by the offer of the moment."""

import time
from typing import Any

import pytest
from pydantic import ValidationError

from ductile_gateway.plugins.manifest import Manifest, read_manifest
from ductile_gateway.tools.catalog import Offers, ToolChoice, difference, draw_catalog
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from tests.gateway.parts import CATALOG, FETCH, World, a_request, asked_for, offering, outcomes

NUMBER = {"type": "object", "properties": {"url": {"type": "integer"}}}
STRICTER = FETCH.model_copy(update={"commands": (ToolCommand(name="handle", tier="read", input_schema=NUMBER),)})


def a_manifest(name: str, *commands: dict[str, Any], **more: Any) -> Manifest:
    kind = {"manifest_spec": "ductile.plugin", "manifest_version": 1, "protocol": 2, "version": "1"}
    about = {"name": name, "entrypoint": "run.py", "description": f"What {name} does."}
    return read_manifest(kind | about | {"commands": list(commands) or [{"name": "handle", "type": "read"}]} | more)


READER = a_manifest(
    "jina-reader",
    {"name": "poll", "type": "write", "idempotent": True},
    {"name": "handle", "type": "read", "input_schema": {"url": "string"}},
)
FABRIC = a_manifest("fabric")


def drawn(*manifests: Manifest, choices: dict[str, ToolChoice] | None = None) -> tuple[Catalog, tuple[str, ...]]:
    return draw_catalog({manifest.name: manifest for manifest in manifests}, choices, timeout_s=60)


def offered(*manifests: Manifest, choices: dict[str, ToolChoice] | None = None) -> dict[str, list[str]]:
    """The commands on offer, by tool."""
    catalog, _ = drawn(*manifests, choices=choices)
    return {tool.name: [command.name for command in tool.commands] for tool in catalog.tools}


def effects(tool: ToolOffer) -> dict[str, str | None]:
    return {command.name: command.effect for command in tool.commands}


def test_without_a_choice_every_plugin_is_a_tool_with_all_of_its_commands() -> None:
    catalog, problems = drawn(READER, FABRIC)
    fabric, reader = catalog.tools
    assert (fabric.name, reader.name, reader.route, reader.timeout_s) == ("fabric", "jina-reader", "jina-reader", 60)
    handle, poll = reader.commands
    assert (handle.name, handle.tier, handle.idempotent) == ("handle", "read", False)
    assert handle.input_schema == {"type": "object", "properties": {"url": {"type": "string"}}}
    assert (poll.name, poll.tier, poll.idempotent) == ("poll", "write", True)
    assert problems == ()


def test_a_choice_names_the_tool_and_cuts_it_to_some_commands() -> None:
    choice = ToolChoice(plugin="jina-reader", commands=frozenset({"handle"}), description="Reads the web.", timeout_s=5)
    (fetch,) = drawn(READER, FABRIC, choices={"fetch": choice})[0].tools
    assert (fetch.name, fetch.route, fetch.description, fetch.timeout_s) == (
        "fetch",
        "jina-reader",
        "Reads the web.",
        5,
    )
    assert [command.name for command in fetch.commands] == ["handle"]
    assert offered(READER, choices={}) == {}
    twice = {name: ToolChoice(plugin="jina-reader") for name in ("fetch", "browse")}
    assert list(offered(READER, choices=twice)) == ["browse", "fetch"]


def test_commands_that_look_after_a_plugin_are_on_offer_only_if_they_are_chosen() -> None:
    manifest = a_manifest("tool", *({"name": name, "type": "read"} for name in ("health", "init", "poll", "handle")))
    chosen = {"tool": ToolChoice(commands=frozenset({"health", "handle"}))}
    assert offered(manifest) == {"tool": ["handle", "poll"]}
    assert offered(manifest, choices=chosen) == {"tool": ["handle", "health"]}


def test_a_plugin_that_has_no_others_is_told_with_its_mend() -> None:
    catalog, problems = drawn(FABRIC, a_manifest("tool", {"name": "health", "type": "read"}))
    assert [tool.name for tool in catalog.tools] == ["fabric"]
    assert [problem for problem in problems if "has only health" in problem and "give it a command" in problem]


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


def test_what_is_said_of_one_command_goes_before_what_is_said_of_its_tool() -> None:
    names = ({"name": name, "type": "write"} for name in ("draft", "post", "purge"))
    choice = {"approve": "always", "commands": {"draft": {"approve": "never", "effect": "local"}, "post": None}}
    (tool,) = drawn(a_manifest("mail", *names), choices={"mail": ToolChoice.model_validate(choice)})[0].tools
    assert {command.name: command.approve for command in tool.commands} == {"draft": "never", "post": "always"}
    assert effects(tool) == {"draft": "local", "post": None}


@pytest.mark.parametrize("commands", [[], {}, {"post": {"approve": "sometimes"}}, {"post": {"output": "untrusted"}}])
def test_a_choice_of_commands_that_cannot_be_meant_is_refused(commands: Any) -> None:
    with pytest.raises(ValidationError):
        ToolChoice.model_validate({"commands": commands})


@pytest.mark.parametrize(
    ("name", "choice", "problem"),
    [
        ("fetch", ToolChoice(), "no plugin fetch"),
        ("fetch", ToolChoice(plugin="reader"), "no plugin reader"),
        ("jina-reader", ToolChoice(commands=frozenset({"read"})), "no command read"),
        ("ask", ToolChoice(plugin="agentic-wake"), "start an agent"),
        ("agentic-loop", ToolChoice(plugin="jina-reader"), "start an agent"),
        ("Fetch", ToolChoice(plugin="jina-reader"), "not a legal name"),
    ],
)
def test_a_choice_that_cannot_be_had_is_left_out_with_the_reason(name: str, choice: ToolChoice, problem: str) -> None:
    catalog, (told,) = drawn(READER, a_manifest("agentic-wake"), choices={name: choice})
    assert catalog.tools == ()
    assert problem in told


def test_our_own_routes_are_never_on_offer() -> None:
    catalog, problems = drawn(FABRIC, a_manifest("agentic-wake"), a_manifest("agentic-loop"))
    assert ([tool.name for tool in catalog.tools], len(problems)) == (["fabric"], 2)


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


def test_a_manifest_with_a_text_that_cannot_be_stored_is_left_out() -> None:
    catalog, (problem,) = drawn(FABRIC, a_manifest("tool", {"name": "c", "type": "read", "description": "a\0b"}))
    assert ([tool.name for tool in catalog.tools], "tool tool" in problem) == (["fabric"], True)


def test_the_revision_tells_two_catalogs_apart_and_does_not_depend_on_the_order_of_plugins() -> None:
    assert drawn(READER, FABRIC)[0] == drawn(FABRIC, READER)[0]
    assert drawn(READER)[0].revision != drawn(READER, FABRIC)[0].revision


def catalog_of(*offers: ToolOffer) -> Catalog:
    return CATALOG.model_copy(update={"revision": "sha256:2", "tools": offers})


async def test_what_is_on_offer_may_be_replaced_with_the_schemas_that_belong_to_it() -> None:
    world, offers = World(), Offers()
    assert (offers.find("fetch"), offers.catalog.tools) == (None, ())
    offers.replace(CATALOG)
    assert offers.flaw(asked_for()) is None
    relay = world.relay(offers=offers)
    await relay.take(asked_for(a_request(step=1)))
    offers.replace(catalog_of(STRICTER))
    assert "integer" in str(offers.flaw(asked_for()))
    offers.replace(catalog_of())
    await relay.take(asked_for(a_request(step=2)))
    assert outcomes(world) == ["ok", "not_allowed"]


def test_what_came_went_and_changed_is_told_apart() -> None:
    other = FETCH.model_copy(update={"name": "browse"})
    before, now = catalog_of(FETCH, other), catalog_of(STRICTER, FETCH.model_copy(update={"name": "read"}))
    assert difference(before, now) == {"new": ["read"], "gone": ["browse"], "changed": ["fetch"]}
    assert difference(before, before) == {"new": [], "gone": [], "changed": []}


@pytest.mark.parametrize(
    ("request_", "flaw"),
    [
        (a_request(payload={"url": "x", "more": 1}), None),
        (a_request(payload={}), "url"),
        (a_request(payload={"url": 5}), "url: 5 is not of type"),
        (a_request(payload={"url": ["x" * 100_000]}), "url: "),
        (a_request("save", {"any": 1}), None),
        (a_request("unheard-of"), None),
        (a_request(tool="other"), None),
    ],
)
def test_a_flaw_of_arguments_says_shortly_where_it_is_and_without_a_schema_there_is_none(
    request_: Any, flaw: str | None
) -> None:
    found = offering(CATALOG).flaw(asked_for(request_))
    assert (found is None) is (flaw is None)
    assert (flaw or "") in (found or "")
    assert len(found or "") < 1000


def test_a_pattern_that_explodes_elsewhere_is_matched_at_once() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    offer = ToolOffer(name="t", route="t", commands=(ToolCommand(name="c", tier="read", input_schema=schema),))
    began = time.monotonic()
    assert offering(catalog_of(offer)).flaw(asked_for(a_request("c", {"a": "a" * 5000 + "!"}, tool="t"), "t"))
    assert time.monotonic() - began < 1
