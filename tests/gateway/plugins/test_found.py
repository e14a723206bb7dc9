"""Discovery of plugins: manifests, and a warning with file and reason for each one that is left out."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ductile_gateway.plugins.folders import discover_plugins
from ductile_gateway.plugins.manifest import read_manifest

SHIPPED = Path(__file__).parents[3] / "deploy" / "ductile" / "plugins"


def document(**changes: Any) -> dict[str, Any]:
    kind = {"manifest_spec": "ductile.plugin", "manifest_version": 1, "protocol": 2}
    about = {"name": "demo", "version": "0.1.0", "entrypoint": "run.py"}
    return kind | about | {"commands": [{"name": "handle", "type": "read"}]} | changes


def test_each_shipped_plugin_describes_itself_says_whose_words_it_brings_and_those_that_bring_ours_only_read() -> None:
    manifests = {path.name: yaml.safe_load((path / "manifest.yaml").read_text("utf-8")) for path in SHIPPED.iterdir()}
    shipped = {name: read_manifest(told) for name, told in manifests.items()}
    trusted = {name for name, manifest in shipped.items() if manifest.output == "trusted"}
    assert trusted == {"agentic-wake", "artifact", "echo", "knowledge", "text-report", "z3-solver"}
    assert {name for name, manifest in shipped.items() if manifest.output is None} == set()
    for name in trusted - {"agentic-wake"}:
        assert {command.effect for command in shipped[name].commands} == {"local"}
        assert {command.type for command in shipped[name].commands} == {"read"}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (document(protocol=1), "protocol"),
        *((document(name=name), "name") for name in ("../system", "Demo", "x" * 65, "demo\n")),
        *(
            (document(entrypoint=path), "entrypoint")
            for path in ("/bin/sh", "../run.py", "bin/../../run.py", ".", None)
        ),
        (document(commands=[{"name": "handle", "type": "execute"}]), "commands.0.type"),
        (document(commands=[{"name": "a.b", "type": "read"}]), "commands.0.name"),
        (document(commands=[{"name": "a", "type": "read"}, {"name": "a", "type": "write"}]), "same name"),
        ("just text", "manifest: must be an object"),
        (None, "manifest: must be an object"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_named(changed: object, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        read_manifest(changed)


def install(root: Path, name: str, *, entrypoint: str = "run.sh", text: str = "#!/bin/sh\n", **more: Any) -> Path:
    plugin = root / name
    program = plugin / entrypoint
    program.parent.mkdir(parents=True)
    program.write_bytes(text.encode())
    program.chmod(0o755)
    (plugin / "manifest.yaml").write_text(yaml.safe_dump(document(name=name, entrypoint=entrypoint) | more))
    return plugin


def test_every_folder_with_a_manifest_is_a_plugin_and_of_two_with_one_name_the_first(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    install(first, "one")
    install(first, "two", entrypoint="bin/run.sh")
    (first / "notes").mkdir()
    (first / "lost+found").mkdir(mode=0)
    (first / "two" / "loop").symlink_to("loop")
    (first / "two" / "odd").symlink_to("manifest.yaml/odd")
    install(second, "one")
    found = discover_plugins([first, second], {"one": {"key": "value"}})
    assert set(found.plugins) == {"one", "two"}
    assert (found.plugins["one"].config, found.plugins["one"].folder) == ({"key": "value"}, first / "one")
    assert found.plugins["two"].entrypoint == first / "two" / "bin" / "run.sh"
    assert str(second / "one") in next(iter(found.left_out))


def open_to_all(path: str) -> Callable[[Path], None]:
    return lambda plugin: (plugin / path).chmod(0o777)


def linked(path: str) -> Callable[[Path], None]:
    def replace(plugin: Path) -> None:
        elsewhere = plugin.parent.parent / "elsewhere"
        (plugin / path).rename(elsewhere)
        (plugin / path).symlink_to(elsewhere)

    return replace


def manifest(content: bytes | dict[str, Any]) -> Callable[[Path], object]:
    written = yaml.safe_dump(document(name="bad") | content).encode() if isinstance(content, dict) else content
    return lambda plugin: (plugin / "manifest.yaml").write_bytes(written)


@pytest.mark.skipif(os.name != "posix", reason="file modes and links are POSIX")
@pytest.mark.parametrize(
    ("spoil", "file", "reason"),
    [
        (open_to_all("."), "bad", "write"),
        (open_to_all("manifest.yaml"), "manifest.yaml", "write"),
        (open_to_all("bin/run.sh"), "run.sh", "write"),
        (open_to_all("bin"), "bin", "write"),
        (linked("bin/run.sh"), "run.sh", "link"),
        (linked("bin"), "bin", "link"),
        (linked("manifest.yaml"), "manifest.yaml", "link"),
        (linked("."), "bad", "link"),
        (lambda plugin: (plugin / "bin/run.sh").chmod(0o644), "run.sh", "executable"),
        (lambda plugin: (plugin / "bin/run.sh").unlink(), "run.sh", "No such file"),
        (manifest({"entrypoint": "bin"}), "bad/bin", "executable"),
        (manifest(b"protocol: 1\nprotocol: 2\n"), "manifest.yaml", "given twice"),
        (manifest(b"a: [b"), "manifest.yaml", "cannot be used"),
        (manifest(b"!!python/object/apply:os.getpid []"), "manifest.yaml", "cannot be used"),
        (manifest(b"\xff\xfe"), "manifest.yaml", "cannot be used"),
        (manifest(b"{}"), "manifest.yaml", "manifest_spec"),
    ],
)
def test_a_bad_plugin_is_left_out_with_the_reason_and_the_others_work(
    tmp_path: Path, spoil: Callable[[Path], object], file: str, reason: str
) -> None:
    root = tmp_path / "plugins"
    install(root, "good")
    spoil(install(root, "bad", entrypoint="bin/run.sh"))
    found = discover_plugins([root], {})
    (told,) = found.left_out
    assert (set(found.plugins), file in told, reason in told) == ({"good"}, True, True)


def test_a_plugin_without_its_required_configuration_is_left_out(tmp_path: Path) -> None:
    install(tmp_path, "needy", config_keys={"required": ["url", "token"]})
    found = discover_plugins([tmp_path], {"needy": {"url": "https://example.com"}})
    assert (found.plugins, "token (set gateway.plugins.config.needy)" in next(iter(found.left_out))) == ({}, True)
    assert "example.com" not in next(iter(found.left_out))


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("echo hello\n", "write `#!/usr/bin/env bash` as line 1"),
        ("#!/usr/bin/env no-such-thing\n", "wants no-such-thing, which is not here"),
        ("#!sh\n", "wants /sh, which is not here"),
        ("#!/usr/bin/env bash\r\necho hello\r\n", "sed -i"),
    ],
)
def test_a_program_that_cannot_be_started_is_left_out_with_the_mend(tmp_path: Path, text: str, mend: str) -> None:
    install(tmp_path, "one", text=text)
    found = discover_plugins([tmp_path], {})
    assert (found.plugins, mend in next(iter(found.left_out))) == ({}, True)


@pytest.mark.parametrize("python", ["#!/usr/bin/env python3", f"#!{sys.executable}"])
def test_a_plugin_whose_package_is_not_installed_is_left_out_with_the_mend(tmp_path: Path, python: str) -> None:
    for name, package in (("solver", "no-such-solver"), ("checker", "pytest")):
        install(tmp_path, name, text=f"{python}\n", python_packages=[package])
    found = discover_plugins([tmp_path], {}, search=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    ((told, refusal),) = found.left_out.items()
    assert (set(found.plugins), refusal.optional) == ({"checker"}, "")
    assert told.endswith("-m pip install no-such-solver")
