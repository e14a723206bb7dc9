"""Which tools are on offer, and why some are not."""

from typing import Any

import pytest

from ductile_gateway.plugins.manifest import Manifest, read_manifest
from ductile_gateway.tools.catalog import ToolChoice, draw_catalog
from schemas.catalog import Catalog


def a_manifest(name: str, *commands: dict[str, Any]) -> Manifest:
    document = {
        "manifest_spec": "ductile.plugin",
        "manifest_version": 1,
        "protocol": 2,
        "name": name,
        "version": "1",
        "entrypoint": "run.py",
        "description": f"What {name} does.",
        "commands": list(commands) or [{"name": "handle", "type": "read"}],
    }
    return read_manifest(document)


READER = a_manifest(
    "jina-reader",
    {"name": "poll", "type": "write", "idempotent": True},
    {"name": "handle", "type": "read", "input_schema": {"url": "string"}},
)
FABRIC = a_manifest("fabric")


def drawn(*manifests: Manifest, choices: dict[str, ToolChoice] | None = None) -> tuple[Catalog, tuple[str, ...]]:
    there = {manifest.name: manifest for manifest in manifests}
    return draw_catalog(there, choices, timeout_s=60)


def test_without_a_choice_every_plugin_is_a_tool_with_all_of_its_commands() -> None:
    catalog, problems = drawn(READER, FABRIC)
    assert problems == ()
    assert [(tool.name, tool.route, tool.timeout_s) for tool in catalog.tools] == [
        ("fabric", "fabric", 60),
        ("jina-reader", "jina-reader", 60),
    ]
    handle, poll = catalog.tools[1].commands
    assert (handle.name, handle.tier, handle.idempotent) == ("handle", "read", False)
    assert handle.input_schema == {"type": "object", "properties": {"url": {"type": "string"}}}
    assert (poll.name, poll.tier, poll.idempotent) == ("poll", "write", True)


def test_a_choice_names_the_tool_and_cuts_it_to_some_commands() -> None:
    choice = ToolChoice(plugin="jina-reader", commands=frozenset({"handle"}), description="Reads the web.", timeout_s=5)
    catalog, problems = drawn(READER, FABRIC, choices={"fetch": choice})
    assert problems == ()
    (fetch,) = catalog.tools
    assert (fetch.name, fetch.route, fetch.description, fetch.timeout_s) == (
        "fetch",
        "jina-reader",
        "Reads the web.",
        5,
    )
    assert [command.name for command in fetch.commands] == ["handle"]


def test_a_choice_of_no_tools_offers_none() -> None:
    assert drawn(READER, choices={})[0].tools == ()


def test_commands_that_look_after_a_plugin_are_on_offer_only_if_they_are_chosen() -> None:
    manifest = a_manifest("tool", *({"name": name, "type": "read"} for name in ("health", "init", "poll", "handle")))
    chosen = {"tool": ToolChoice(commands=frozenset({"health", "handle"}))}
    for choices, names in ((None, ["handle", "poll"]), (chosen, ["handle", "health"])):
        (tool,) = drawn(manifest, choices=choices)[0].tools
        assert [command.name for command in tool.commands] == names


def test_a_plugin_may_be_two_tools() -> None:
    catalog, _ = drawn(READER, choices={name: ToolChoice(plugin="jina-reader") for name in ("fetch", "browse")})
    assert [tool.name for tool in catalog.tools] == ["browse", "fetch"]


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
    catalog, problems = drawn(READER, a_manifest("agentic-wake"), choices={name: choice})
    assert catalog.tools == ()
    assert len(problems) == 1
    assert problem in problems[0]


def test_our_own_routes_are_never_on_offer() -> None:
    catalog, problems = drawn(FABRIC, a_manifest("agentic-wake"), a_manifest("agentic-loop"))
    assert [tool.name for tool in catalog.tools] == ["fabric"]
    assert len(problems) == 2


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "properties": {"a": {"default": float("nan")}}},
    ],
    ids=["unknown type", "broken pattern", "schema from the network", "schema from a file", "not JSON"],
)
def test_a_command_whose_schema_cannot_be_used_is_left_out_and_the_others_stay(schema: dict[str, Any]) -> None:
    bad = {"name": "bad", "type": "read", "input_schema": schema}
    catalog, problems = drawn(a_manifest("tool", bad, {"name": "good", "type": "read"}))
    assert [command.name for command in catalog.tools[0].commands] == ["good"]
    assert "command bad" in problems[0]


def test_a_tool_without_a_usable_command_is_not_on_offer() -> None:
    catalog, problems = drawn(a_manifest("tool", {"name": "bad", "type": "read", "input_schema": {"type": "objekt"}}))
    assert catalog.tools == ()
    assert len(problems) == 1


def test_a_manifest_with_a_text_that_cannot_be_stored_is_left_out() -> None:
    catalog, problems = drawn(FABRIC, a_manifest("tool", {"name": "c", "type": "read", "description": "a\0b"}))
    assert [tool.name for tool in catalog.tools] == ["fabric"]
    assert "tool tool" in problems[0]


def test_the_revision_tells_two_catalogs_apart_and_does_not_depend_on_the_order_of_plugins() -> None:
    one, two = drawn(READER, FABRIC)[0], drawn(FABRIC, READER)[0]
    assert one == two
    assert drawn(READER)[0].revision != one.revision
