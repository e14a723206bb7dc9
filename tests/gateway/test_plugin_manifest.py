"""Manifests: what is accepted, and what is said of what is not."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ductile_gateway.plugins.manifest import ManifestInvalid, read_manifest
from ductile_gateway.tools.catalog import HOUSEKEEPING

SHIPPED = Path(__file__).parents[2] / "deploy" / "ductile" / "plugins"


def document(**changes: Any) -> dict[str, Any]:
    return {
        "manifest_spec": "ductile.plugin",
        "manifest_version": 1,
        "protocol": 2,
        "name": "demo",
        "version": "0.1.0",
        "entrypoint": "run.py",
        "commands": [{"name": "handle", "type": "read"}],
    } | changes


def with_command(**fields: Any) -> dict[str, Any]:
    return document(commands=[{"name": "handle", "type": "read"} | fields])


def test_a_minimal_manifest_has_safe_defaults() -> None:
    command = read_manifest(document()).commands[0]
    assert (command.idempotent, command.retry_safe, command.input_schema) == (False, False, {})


def test_each_shipped_plugin_says_whose_words_it_brings_and_most_keep_to_the_house() -> None:
    shipped = {
        path.name: read_manifest(yaml.safe_load((path / "manifest.yaml").read_text())) for path in SHIPPED.iterdir()
    }
    trusted = {name for name, manifest in shipped.items() if manifest.output == "trusted"}
    assert trusted == {"agentic-wake", "artifact", "echo", "knowledge", "text-report", "z3-solver"}
    assert {name for name, manifest in shipped.items() if manifest.output is None} == set()
    for name in ("echo", "artifact", "knowledge", "text-report", "z3-solver"):
        assert {command.effect for command in shipped[name].commands} == {"local"}


def test_of_the_shipped_plugins_none_that_hands_on_what_it_was_given_continues() -> None:
    for name in ("echo", "fetch", "artifact", "knowledge", "text-report"):
        manifest = yaml.safe_load((SHIPPED / name / "manifest.yaml").read_text())
        assert not read_manifest(manifest).continues
        told = [
            command["output_schema"].get("x-continues")
            for command in manifest["commands"]
            if "output_schema" in command
        ]
        assert False in told, f"a Ductile does not tell it of {name}"


@pytest.mark.parametrize(
    ("plugin", "commands"),
    [
        ("artifact", ["read", "search"]),
        ("echo", ["handle"]),
        ("fetch", ["handle"]),
        ("knowledge", ["search"]),
        ("text-report", ["handle"]),
        ("z3-solver", ["solve"]),
    ],
)
def test_the_shipped_plugins_describe_themselves_to_a_model(plugin: str, commands: list[str]) -> None:
    manifest = read_manifest(yaml.safe_load((SHIPPED / plugin / "manifest.yaml").read_text(encoding="utf-8")))
    assert manifest.description
    described = [command for command in manifest.commands if command.name not in HOUSEKEEPING]
    assert [command.name for command in described] == commands
    for command in described:
        assert command.description
        assert command.input_schema["additionalProperties"] is False
        assert command.type == "read"
        assert command.idempotent


def test_the_short_form_of_a_schema_is_written_out() -> None:
    manifest = read_manifest(with_command(input_schema={"url": "string", "tags": {"type": "array"}}))
    assert manifest.commands[0].input_schema == {
        "type": "object",
        "properties": {"url": {"type": "string"}, "tags": {"type": "array"}},
    }


def test_unknown_keys_and_keys_without_a_value_are_tolerated() -> None:
    manifest = read_manifest(
        document(concurrency_safe=True, config_keys={"required": None}, description=None, version=1.0)
    )
    assert (manifest.config_keys.required, manifest.version) == ((), "1.0")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (document(manifest_spec="other.plugin"), "manifest_spec"),
        (document(manifest_version=2), "manifest_version"),
        (document(protocol=1), "protocol"),
        (document(name="../system"), "name"),
        (document(name="Demo"), "name"),
        (document(name="x" * 65), "name"),
        (document(name="demo\n"), "name"),
        (document(entrypoint="/bin/sh"), "entrypoint"),
        (document(entrypoint="../run.py"), "entrypoint"),
        (document(entrypoint="bin/../../run.py"), "entrypoint"),
        (document(entrypoint="."), "entrypoint"),
        (document(entrypoint=None), "entrypoint"),
        (document(commands=[]), "commands"),
        (document(commands=["handle"]), "commands.0"),
        (with_command(type=None), "commands.0.type"),
        (with_command(type="execute"), "commands.0.type"),
        (with_command(name="a.b"), "commands.0.name"),
        (document(commands=[{"name": "a", "type": "read"}, {"name": "a", "type": "write"}]), "same name"),
        ("just text", "key: value"),
        (None, "key: value"),
    ],
)
def test_what_is_wrong_is_named(changed: object, named: str) -> None:
    with pytest.raises(ManifestInvalid) as refused:
        read_manifest(changed)
    assert named in str(refused.value)


def test_a_list_with_a_flawed_item_is_not_told_to_be_empty() -> None:
    with pytest.raises(ManifestInvalid) as refused:
        read_manifest(with_command(type=None))
    assert (
        str(refused.value)
        == "commands.0.type is missing: add `type: read`, or `type: write` where it changes something"
    )
