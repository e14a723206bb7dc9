"""Finding plugins: the usable ones, and a warning that names file and reason for each of the others."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from ductile_gateway.plugins.folders import discover_plugins
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.toolbox import find_tools

MANIFEST = """
manifest_spec: ductile.plugin
manifest_version: 1
protocol: 2
name: {name}
version: 0.1.0
entrypoint: {entrypoint}
commands: [{{name: handle, type: read}}]
config_keys: {{required: [{required}]}}
"""


def install(
    root: Path, name: str, *, entrypoint: str = "run.sh", required: str = "", folder: str | None = None
) -> Path:
    plugin = root / (folder or name)
    program = plugin / entrypoint
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    manifest = MANIFEST.format(name=name, entrypoint=entrypoint, required=required)
    (plugin / "manifest.yaml").write_text(manifest)
    return plugin


def test_every_folder_with_a_manifest_is_a_plugin(tmp_path: Path) -> None:
    install(tmp_path, "one")
    install(tmp_path, "two", entrypoint="bin/run.sh")
    (tmp_path / "notes").mkdir()
    found = discover_plugins([tmp_path], {"one": {"key": "value"}}).plugins
    assert set(found) == {"one", "two"}
    assert found["one"].config == {"key": "value"}
    assert found["two"].entrypoint == tmp_path / "two" / "bin" / "run.sh"


def test_of_two_plugins_with_one_name_the_first_is_kept(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    install(first, "one")
    install(second, "one")
    found = discover_plugins([first, second], {})
    assert found.plugins["one"].folder == first / "one"
    assert str(second / "one") in found.left_out[0]


def _world_writable(path: str) -> Callable[[Path], None]:
    return lambda plugin: (plugin / path).chmod(0o777)


def _replace_by_link(path: str) -> Callable[[Path], None]:
    def replace(plugin: Path) -> None:
        target = plugin / path
        elsewhere = plugin.parent.parent / "elsewhere"
        target.rename(elsewhere)
        target.symlink_to(elsewhere)

    return replace


def _changed(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


SPOILERS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "folder open to all": (_world_writable("."), "bad", "write"),
    "manifest open to all": (_world_writable("manifest.yaml"), "manifest.yaml", "write"),
    "entrypoint open to all": (_world_writable("bin/run.sh"), "run.sh", "write"),
    "folder inside open to all": (_world_writable("bin"), "bin", "write"),
    "linked entrypoint": (_replace_by_link("bin/run.sh"), "run.sh", "link"),
    "linked folder inside": (_replace_by_link("bin"), "bin", "link"),
    "linked manifest": (_replace_by_link("manifest.yaml"), "manifest.yaml", "link"),
    "linked folder": (_replace_by_link("."), "bad", "link"),
    "not executable": (lambda plugin: (plugin / "bin/run.sh").chmod(0o644), "run.sh", "executable"),
    "no entrypoint": (lambda plugin: (plugin / "bin/run.sh").unlink(), "run.sh", "No such file"),
    "a folder as entrypoint": (
        lambda plugin: _changed(plugin / "manifest.yaml", "bin/run.sh", "bin"),
        "bad/bin",
        "it is a folder",
    ),
    "a key given twice": (
        lambda plugin: _changed(plugin / "manifest.yaml", "protocol: 2", "protocol: 1\nprotocol: 2"),
        "manifest.yaml",
        "given twice",
    ),
    "no YAML": (lambda plugin: (plugin / "manifest.yaml").write_text("a: [b"), "manifest.yaml", "cannot be read"),
    "a tag that builds an object": (
        lambda plugin: (plugin / "manifest.yaml").write_text("!!python/object/apply:os.getpid []"),
        "manifest.yaml",
        "cannot be read",
    ),
    "not UTF-8": (
        lambda plugin: (plugin / "manifest.yaml").write_bytes(b"\xff\xfe"),
        "manifest.yaml",
        "cannot be read",
    ),
    "huge": (lambda plugin: (plugin / "manifest.yaml").write_bytes(b"#" * 300_000), "manifest.yaml", "larger"),
    "no manifest of ours": (
        lambda plugin: (plugin / "manifest.yaml").write_text("{}"),
        "manifest.yaml",
        "manifest_spec",
    ),
}


@pytest.mark.skipif(os.name != "posix", reason="file modes and links are POSIX")
@pytest.mark.parametrize("spoiler", SPOILERS)
def test_a_bad_plugin_is_left_out_with_the_reason_and_the_others_work(tmp_path: Path, spoiler: str) -> None:
    spoil, file, reason = SPOILERS[spoiler]
    root = tmp_path / "plugins"
    install(root, "good")
    spoil(install(root, "bad", entrypoint="bin/run.sh"))
    found = discover_plugins([root], {})
    assert set(found.plugins) == {"good"}
    (told,) = found.left_out
    assert file in told
    assert reason in told


def test_a_plugin_without_its_required_configuration_is_left_out(tmp_path: Path) -> None:
    install(tmp_path, "needy", required="url, token")
    found = discover_plugins([tmp_path], {"needy": {"url": "https://example.com"}})
    assert found.plugins == {}
    assert "token (set gateway.plugins.config.needy)" in found.left_out[0]
    assert "example.com" not in found.left_out[0]


MENDS: dict[str, tuple[str, str]] = {
    "no interpreter named": ("echo hello\n", "write `#!/usr/bin/env bash` as line 1"),
    "an interpreter that is not here": ("#!/usr/bin/env no-such-thing\n", "wants no-such-thing, which is not on PATH"),
    "a path that leads nowhere": ("#!/opt/none/bin/perl -w\n", "wants /opt/none/bin/perl, which is not here"),
    "lines of Windows": ("#!/usr/bin/env bash\r\necho hello\r\n", "sed -i"),
    "nothing after the mark": ("#!\n", "nothing follows `#!`"),
}


@pytest.mark.parametrize("program", MENDS)
def test_a_program_that_cannot_be_started_is_left_out_with_the_mend(tmp_path: Path, program: str) -> None:
    text, mend = MENDS[program]
    (install(tmp_path, "one") / "run.sh").write_bytes(text.encode())
    found = discover_plugins([tmp_path], {})
    assert found.plugins == {}
    assert mend in found.left_out[0]


def test_a_path_in_the_configuration_begins_where_the_gateway_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "one")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    given: dict[str, JsonValue] = {
        "here": "./notes",
        "above": "../x",
        "home": "~/notes",
        "whole": "/notes",
        "word": "notes",
        "number": 3,
    }
    told = discover_plugins([tmp_path], {"one": given}).plugins["one"].config
    above = str(tmp_path.parent / "x")
    placed = {"here": str(tmp_path / "notes"), "above": above, "home": "/home/somebody/notes"}
    assert told == given | placed


@pytest.mark.parametrize("python", ["#!/usr/bin/env python3", f"#!{sys.executable}"])
def test_a_plugin_whose_package_is_not_installed_is_left_out_with_the_mend(tmp_path: Path, python: str) -> None:
    for name, package in (("solver", "no-such-solver"), ("checker", "pytest")):
        program = install(tmp_path, name)
        (program / "run.sh").write_text(f"{python}\n")
        with (program / "manifest.yaml").open("a") as manifest:
            manifest.write(f"python_packages: [{package}]\n")
    found = discover_plugins([tmp_path], {}, search=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert set(found.plugins) == {"checker"}
    assert found.left_out == found.lacking
    assert found.lacking[0].endswith("-m pip install no-such-solver")


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({}, False),
        ({"tools": ["solver"]}, True),
        ({"tools": {"mine": {"plugin": "solver"}}}, True),
        ({"plugins": {"config": {"solver": {}}}}, True),
    ],
)
async def test_a_plugin_whose_package_an_extra_of_ours_brings_is_missed_only_where_settings_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: dict[str, Any], told: bool
) -> None:
    ours = tmp_path / "installed" / "agentic_loop_nats-1.dist-info"
    ours.mkdir(parents=True)
    (ours / "METADATA").write_text(
        'Name: agentic-loop-nats\nVersion: 1\nRequires-Dist: no-such<6; extra == "solving"\n'
    )
    monkeypatch.syspath_prepend(ours.parent)
    program = install(tmp_path / "tools", "solver")
    (program / "run.sh").write_text(f"#!{sys.executable}\n")
    with (program / "manifest.yaml").open("a") as manifest:
        manifest.write("python_packages: [no-such]\n")
    folders = {"folders": [tmp_path / "tools"], **named.get("plugins", {})}
    tools = await find_tools(GatewaySettings.model_validate(named | {"plugins": folders}))
    assert any("does not have" in problem for problem in tools.problems) is told
    assert tools.lacking[0].endswith("does not have no-such: pip install 'agentic-loop-nats[solving]'")
