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


def test_each_shipped_plugin_says_whose_words_it_brings_and_most_keep_to_the_house() -> None:
    shipped = {
        path.name: read_manifest(yaml.safe_load((path / "manifest.yaml").read_text())) for path in SHIPPED.iterdir()
    }
    trusted = {name for name, manifest in shipped.items() if manifest.output == "trusted"}
    assert trusted == {"agentic-wake", "artifact", "echo", "knowledge", "text-report", "z3-solver"}
    assert {name for name, manifest in shipped.items() if manifest.output is None} == set()
    for name in ("echo", "artifact", "knowledge", "text-report", "z3-solver"):
        assert {command.effect for command in shipped[name].commands} == {"local"}


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
