"""Which tools are on offer, why some are not, and how arguments are checked by the offer of the moment."""

from typing import Any

import pytest

from ductile_gateway.plugins.manifest import Manifest, read_manifest
from ductile_gateway.tools.catalog import ToolChoice, draw_catalog
from schemas.catalog import Catalog, ToolOffer
from tests.gateway.parts import CATALOG, a_request, asked_for, offering


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
        ("Fetch", ToolChoice(plugin="jina-reader"), "not a legal name"),
    ],
)
def test_a_choice_that_cannot_be_had_is_left_out_with_the_reason(name: str, choice: ToolChoice, problem: str) -> None:
    catalog, (told,) = drawn(READER, a_manifest("agentic-wake"), choices={name: choice})
    assert catalog.tools == ()
    assert problem in told


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


def test_our_own_routes_are_never_on_offer() -> None:
    catalog, problems = drawn(FABRIC, a_manifest("agentic-wake"), a_manifest("agentic-loop"))
    assert ([tool.name for tool in catalog.tools], len(problems)) == (["fabric"], 2)
