"""Plugin folders on disk: found, read and checked before anything in them is run.

A root holds one folder per plugin, each with a `manifest.yaml`, or is one. Like Ductile we refuse folders that
everybody may write to and links that lead elsewhere, and any other file of the plugin, too: its writer could run as us.
"""

import contextlib
import logging
import os
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import NoReturn

from pydantic import JsonValue

from ductile_gateway.plugins import entrypoints
from ductile_gateway.plugins.manifest import Manifest, ManifestInvalid, read_manifest
from groundwork.service.strict import NotYaml, parse
from schemas import subjects
from schemas.values import dataclass

MANIFEST = "manifest.yaml"
MAX_MANIFEST_BYTES = 256 * 1024
FROM_HERE = ("./", "../", "~/")

Config = Mapping[str, JsonValue]

log = logging.getLogger(__name__)


class PluginsMisconfigured(Exception):
    """The configuration names a plugin folder that is not there: or one that is not safe: correct it."""


class PluginRefused(Exception):
    """This plugin is left out; the message names the file and the reason."""


class PluginLacks(PluginRefused):
    """It lacks something on this machine and is left out. `plugin`: its name, where an extra of ours brings what it
    needs."""

    def __init__(self, why: str, plugin: str) -> None:
        super().__init__(why)
        self.plugin = plugin


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plugin that may be run: `folder` and `entrypoint` are absolute and were checked."""

    manifest: Manifest
    folder: Path
    entrypoint: Path
    config: Config


@dataclass(frozen=True, slots=True)
class Discovered:
    """Usable plugins by name, and why each other is left out. `lacking`: those that lack only a package of Python.
    `optional`: those of them that want an extra of ours."""

    plugins: Mapping[str, InstalledPlugin]
    left_out: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    optional: Mapping[str, str] = field(default_factory=dict)


def discover_plugins(
    roots: Iterable[Path], config_by_plugin: Mapping[str, Config], *, search: str | None = None
) -> Discovered:
    """Of two plugins with one name the first. `search`: PATH for interpreters. Raises PluginsMisconfigured."""
    found: dict[str, InstalledPlugin] = {}
    refusals = dict[str, PluginRefused]()
    for folder in _folders(roots):
        try:
            _add(_installed(folder, config_by_plugin, search), found)
        except PluginRefused as refusal:
            refusals[f"plugin left out: {refusal}"] = refusal
    for name in config_by_plugin.keys() - found.keys():
        log.warning("configuration for plugin %s, which is not installed or was left out", name)
    lacking = {told: refusal.plugin for told, refusal in refusals.items() if isinstance(refusal, PluginLacks)}
    optional = {told: plugin for told, plugin in lacking.items() if plugin}
    return Discovered(found, tuple(refusals), tuple(lacking), optional)


def _add(plugin: InstalledPlugin, found: dict[str, InstalledPlugin]) -> None:
    if first := found.get(plugin.manifest.name):
        name = plugin.manifest.name
        raise PluginRefused(f"{plugin.folder}: {name} was found first in {first.folder}: give one another `name`")
    found[plugin.manifest.name] = plugin


def _folders(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        if root.is_file():
            raise PluginsMisconfigured(f"plugin folder {root} is a file: name the folder in which it lies")
        if not root.is_dir():
            raise PluginsMisconfigured(f"plugin folder {root} is not there: create it or correct the configuration")
        if root.stat().st_mode & stat.S_IWOTH:
            raise PluginsMisconfigured(f"plugin folder {root}: {_open_to_all(root)}")
        among = [root.resolve()] if (root / MANIFEST).exists() else sorted(root.resolve().iterdir())
        plugins = [path for path in among if _is_for_us(path)]
        if not plugins:
            log.warning("no plugin is in %s: each is a folder in it, with a %s", root, MANIFEST)
        yield from plugins


def _is_for_us(folder: Path) -> bool:
    return folder.name not in (*subjects.OUR_OWN_ROUTES, "ductile-look") and (folder / MANIFEST).exists()


def _installed(folder: Path, config_by_plugin: Mapping[str, Config], search: str | None) -> InstalledPlugin:
    require_trust(folder)
    require_trust(folder / MANIFEST)
    manifest = _manifest(folder / MANIFEST)
    entrypoint = folder
    if not os.path.exists(folder / manifest.entrypoint):  # noqa: PTH110 - pathlib raises where it may not look
        raise PluginRefused(f"{folder / manifest.entrypoint}: No such file: `entrypoint` has to name the program")
    for part in Path(manifest.entrypoint).parts:
        entrypoint = entrypoint / part
        require_trust(entrypoint)
    if flaw := entrypoints.flaw_of(entrypoint, search):
        raise PluginRefused(f"{entrypoint}: {flaw}")
    _require_trust_in_all(folder)
    if lack := entrypoints.lack_of(entrypoint, manifest.python_packages, search):
        is_optional = entrypoints.extras_with(manifest.python_packages)
        raise PluginLacks(f"{entrypoint}: {lack}", manifest.name if is_optional else "")
    config = {key: _placed(value) for key, value in config_by_plugin.get(manifest.name, {}).items()}
    if missing := [key for key in manifest.config_keys.required if key not in config]:
        place = f"gateway.plugins.config.{manifest.name}"
        raise PluginRefused(
            f"{folder / MANIFEST}: its required configuration is missing: {', '.join(missing)} (set {place})"
        )
    return InstalledPlugin(manifest=manifest, folder=folder, entrypoint=entrypoint, config=config)


def _placed(value: JsonValue) -> JsonValue:
    if isinstance(value, str) and value.startswith(FROM_HERE):
        return os.path.abspath(Path(value).expanduser())  # noqa: PTH100 - `resolve` would follow links
    return value


def require_trust(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise PluginRefused(f"{path}: {error.strerror}") from None
    if stat.S_ISLNK(mode):
        raise PluginRefused(f"{path}: symbolic links are not followed in plugin folders")
    if mode & stat.S_IWOTH:
        raise PluginRefused(f"{path}: {_open_to_all(path)}")


def _require_trust_in_all(folder: Path) -> None:
    for parent, folders, files in os.walk(folder, onerror=_refuse):
        for path in (Path(parent, name) for name in (*folders, *files)):
            with contextlib.suppress(FileNotFoundError):
                mode = path.stat().st_mode
                if mode & stat.S_IWOTH and (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise PluginRefused(f"{path}: {_open_to_all(path)}")


def _open_to_all(path: Path) -> str:
    return f"everybody may write to it (chmod o-w {shlex.quote(str(path))})"


def _refuse(error: OSError) -> NoReturn:
    raise PluginRefused(f"{error.filename}: {error.strerror}") from None


def _manifest(path: Path) -> Manifest:
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise PluginRefused(f"{path}: larger than {MAX_MANIFEST_BYTES} bytes")
        return read_manifest(parse(path.read_text(encoding="utf-8")))
    except ManifestInvalid as error:
        raise PluginRefused(f"{path}: {error}") from None
    except (OSError, UnicodeError, NotYaml) as error:
        raise PluginRefused(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
