"""Finding plugins: the usable ones, and a warning that names file and reason for each of the others."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ductile_gateway.plugins.folders import PluginsMisconfigured, discover_plugins

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
    found = discover_plugins([tmp_path], {"one": {"key": "value"}})
    assert set(found) == {"one", "two"}
    assert found["one"].config == {"key": "value"}
    assert found["two"].entrypoint == tmp_path / "two" / "bin" / "run.sh"


def test_of_two_plugins_with_one_name_the_first_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    install(first, "one")
    install(second, "one")
    found = discover_plugins([first, second], {})
    assert found["one"].folder == first / "one"
    assert str(second / "one") in caplog.text


def test_a_plugin_folder_that_is_not_there_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(PluginsMisconfigured, match="nowhere"):
        discover_plugins([tmp_path / "nowhere"], {})


def test_a_root_that_everybody_may_write_to_is_a_configuration_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PluginsMisconfigured, match="write"):
        discover_plugins([tmp_path], {})


def _world_writable(path: str) -> Callable[[Path], None]:
    return lambda plugin: (plugin / path).chmod(0o777)


def _replace_by_link(path: str) -> Callable[[Path], None]:
    def replace(plugin: Path) -> None:
        target = plugin / path
        elsewhere = plugin.parent.parent / "elsewhere"
        target.rename(elsewhere)
        target.symlink_to(elsewhere)

    return replace


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
def test_a_bad_plugin_is_left_out_with_a_warning_and_the_others_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoiler: str
) -> None:
    spoil, file, reason = SPOILERS[spoiler]
    root = tmp_path / "plugins"
    install(root, "good")
    spoil(install(root, "bad", entrypoint="bin/run.sh"))
    with caplog.at_level(logging.WARNING):
        found = discover_plugins([root], {})
    assert set(found) == {"good"}
    assert file in caplog.text
    assert reason in caplog.text


def test_a_plugin_without_its_required_configuration_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, "needy", required="url, token")
    assert discover_plugins([tmp_path], {"needy": {"url": "https://example.com"}}) == {}
    assert "token" in caplog.text
    assert "example.com" not in caplog.text


def test_configuration_for_a_plugin_that_is_not_there_is_pointed_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    discover_plugins([tmp_path], {"ecko": {}})
    assert "ecko" in caplog.text
