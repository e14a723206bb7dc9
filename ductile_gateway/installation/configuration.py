"""Configuration of a Ductile, with all files it includes, and its program."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from ductile_gateway.plugins.folders import MANIFEST, PluginRefused, manifest_in
from ductile_gateway.plugins.manifest import PluginManifest
from groundwork.service.errors import Misconfigured
from groundwork.service.strict import NotYaml, parse
from schemas.values import dataclass

OUR_PLUGINS = frozenset({"agentic-wake", "agentic-run", "agentic-outcomes"})
GATEWAY = "agentic-gateway"
ANSWERS_WITHIN_S = 60
Generation = Literal["m", "n"]
"""`m`: of May 2026, secrets in files. `n`: newer, secrets in a vault."""


@dataclass(frozen=True, slots=True)
class DuctileConfig:
    """`files`: without those in our own folder, the main one first. `settings`: their merged content."""

    main: Path
    files: list[Path] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def agentic_folder(self) -> Path:
        return self.main.parent / "agentic"

    @property
    def name(self) -> str:
        return str(self.value("service", "name") or "ductile")

    @property
    def url(self) -> str:
        host, _, port = str(self.value("api", "listen") or "127.0.0.1:8080").rpartition(":")
        return f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '[::]') else host}:{port}"  # noqa: S104 - compared with, not listened on

    @property
    def has_tokens(self) -> bool:
        return any(file.name == "tokens.yaml" for file in self.files)

    @property
    def plugins(self) -> dict[str, Any]:
        plugins = self.value("plugins")
        return plugins if isinstance(plugins, dict) else {}

    def value(self, *keys: str) -> Any:
        return value_at(self.settings, *keys)

    def listed(self, *keys: str) -> list[Any]:
        """Empty for anything but a list: Ductile's own check refuses it."""
        found = self.value(*keys)
        return found if isinstance(found, list) else []

    def conflicts(self) -> Iterator[str]:
        for kind, keys in {"relay peer": ("remote_ingress", "peers"), "instance": ("instances",)}.items():
            yield from (f"a {kind} {GATEWAY}" for each in self.listed(*keys) if value_at(each, "name") == GATEWAY)
        yield from (f"a plugin {name}" for name in sorted(OUR_PLUGINS & {*self.plugins, *self.manifests()}))

    def generation(self, wanted: Generation | None) -> Generation:
        """Generation that the configuration implies, else the wanted one. Raises Misconfigured."""
        tokens = self.listed("api", "auth", "tokens")
        has_vault = self.value("secrets") or self.value("service", "admission")
        if has_vault or any(value_at(one, "secret_ref") for one in tokens):
            return "n"
        if self.has_tokens or any(value_at(one, "token") for one in tokens):
            return "m"
        if wanted:
            return wanted
        raise Misconfigured(
            "nothing in it tells which Ductile it is for: say --generation m (of May 2026, secrets in files) or "
            "--generation n (`ductile vault` is one of its commands)"
        )

    def manifests(self) -> dict[str, PluginManifest]:
        """Manifests by name or alias of the plugin; unreadable ones are left out."""
        roots = [self.main.parent / str(root).strip() for root in self.listed("plugin_roots")]
        manifests = list[PluginManifest]()
        for file in (file for root in roots for file in sorted(root.glob(f"*/{MANIFEST}"))):
            with contextlib.suppress(PluginRefused):
                manifests.append(manifest_in(file))
        found = {each.name: each for each in manifests}
        used = {name: str(value_at(one, "uses")) for name, one in self.plugins.items()}
        return found | {name: found[uses] for name, uses in used.items() if uses in found}


def error_of(program: str, command: str, main: Path) -> str:
    """Output of a failed `ductile config COMMAND`; empty if it succeeds. Raises Misconfigured."""
    words = [program, "config", command, "--config", str(main)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=ANSWERS_WITHIN_S)  # noqa: S603, PLW1510
    except subprocess.TimeoutExpired:
        return f"`config {command}` gave no answer in {ANSWERS_WITHIN_S} s"
    except (OSError, subprocess.SubprocessError) as error:
        raise Misconfigured(f"{program} cannot be run ({type(error).__name__}): give it with --ductile") from None
    output = (done.stdout + done.stderr).strip()
    return output[:2000] or f"`config {command}` ended with {done.returncode}" if done.returncode else ""


def read_config(place: Path) -> DuctileConfig:
    main = place / "config.yaml" if place.is_dir() else place
    if not main.is_file():
        raise Misconfigured(
            f"there is no {main}: give the folder of Ductile's config.yaml, such as ~/.config/ductile; "
            "where there is no Ductile yet, deploy/ductile/README.md begins with one"
        )
    found = DuctileConfig(main.resolve())
    _read(found.main, found)
    return found


def _read(file: Path, found: DuctileConfig) -> None:
    if file in found.files or file.is_relative_to(found.agentic_folder):
        return
    found.files.append(file)
    content = read_yaml(file)
    _merge(found.settings, content)
    for name in included if isinstance(included := content.get("include"), list) else []:
        place = file.parent / str(name)
        for each in sorted(place.glob("*.yaml")) if place.is_dir() else [place]:
            if not each.is_relative_to(found.agentic_folder):
                _read(each.resolve(), found)


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    """Merges as Ductile does (`internal/config/loader.go`): lists are joined, other values replaced."""
    for key, value in more.items():
        before = into.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            _merge(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            into[key] = [*before, *value]
        elif value or key not in into:
            into[key] = value


def read_yaml(file: Path) -> dict[str, Any]:
    """Content of the file with its variables filled, as Ductile and the agent do before they parse it."""
    try:
        content = parse(os.path.expandvars(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, NotYaml) as error:
        flaw = "is not text" if isinstance(error, UnicodeDecodeError) else f"cannot be read: {error}"
        raise Misconfigured(f"{file} {flaw}. An encrypted configuration is to be changed by hand") from None
    if not isinstance(content, dict | None):
        raise Misconfigured(f"{file} has no settings as `key: value` lines")
    return content or {}


def value_at(content: Any, *keys: str) -> Any:
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content
