"""Plugin folders on disk: found, read and checked before anything in them is run.

A root holds one folder per plugin, each with a `manifest.yaml`. A plugin that cannot be trusted or used is left out
with a warning that names the file and the reason; the others work. Like Ductile we refuse folders that everybody may
write to and links that lead elsewhere, and any other file of the plugin, too: who can change it could run as us.
"""

import contextlib
import logging
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml
from pydantic import JsonValue

from ductile_gateway.plugins.manifest import Manifest, ManifestInvalid, read_manifest
from schemas import subjects

MANIFEST = "manifest.yaml"
MAX_MANIFEST_BYTES = 256 * 1024

Config = Mapping[str, JsonValue]

log = logging.getLogger(__name__)


class PluginsMisconfigured(Exception):
    """The configuration names a plugin folder that is not there: or one that is not safe: correct it."""


class PluginRefused(Exception):
    """This plugin is left out; the message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plugin that may be run: `folder` and `entrypoint` are absolute and were checked."""

    manifest: Manifest
    folder: Path
    entrypoint: Path
    config: Config


def discover_plugins(roots: Iterable[Path], config_by_plugin: Mapping[str, Config]) -> dict[str, InstalledPlugin]:
    """The usable plugins below the roots, by name; of two with one name the first. Raises PluginsMisconfigured."""
    found: dict[str, InstalledPlugin] = {}
    for folder in _folders(roots):
        try:
            _add(_installed(folder, config_by_plugin), found)
        except PluginRefused as refusal:
            log.warning("plugin left out: %s", refusal)
    for name in config_by_plugin.keys() - found.keys():
        log.warning("configuration for plugin %s, which is not installed or was left out", name)
    return found


def _add(plugin: InstalledPlugin, found: dict[str, InstalledPlugin]) -> None:
    if first := found.get(plugin.manifest.name):
        raise PluginRefused(f"{plugin.folder}: {plugin.manifest.name} was found first in {first.folder}")
    found[plugin.manifest.name] = plugin


def _folders(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        if not root.is_dir():
            raise PluginsMisconfigured(f"plugin folder {root} is not there: create it or correct the configuration")
        if root.stat().st_mode & stat.S_IWOTH:
            raise PluginsMisconfigured(f"plugin folder {root}: everybody may write to it (chmod o-w)")
        yield from sorted(path for path in root.resolve().iterdir() if _is_for_us(path))


def _is_for_us(folder: Path) -> bool:
    """The plugins that wake an agent are for a Ductile: an agent must not call itself."""
    return folder.name not in subjects.OUR_OWN_ROUTES and (folder / MANIFEST).exists()


def _installed(folder: Path, config_by_plugin: Mapping[str, Config]) -> InstalledPlugin:
    _require_trust(folder)
    _require_trust(folder / MANIFEST)
    manifest = _manifest(folder / MANIFEST)
    entrypoint = folder
    for part in Path(manifest.entrypoint).parts:
        entrypoint = entrypoint / part
        _require_trust(entrypoint)
    if not entrypoint.is_file() or not os.access(entrypoint, os.X_OK):
        raise PluginRefused(f"{entrypoint}: the entrypoint must be an executable file (chmod 755)")
    _require_trust_in_all(folder)
    config = config_by_plugin.get(manifest.name, {})
    if missing := [key for key in manifest.config_keys.required if key not in config]:
        raise PluginRefused(f"{folder / MANIFEST}: its required configuration is missing: {', '.join(missing)}")
    return InstalledPlugin(manifest=manifest, folder=folder, entrypoint=entrypoint, config=config)


def _require_trust(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise PluginRefused(f"{path}: {error.strerror}") from None
    if stat.S_ISLNK(mode):
        raise PluginRefused(f"{path}: symbolic links are not followed in plugin folders")
    if mode & stat.S_IWOTH:
        raise PluginRefused(f"{path}: everybody may write to it (chmod o-w)")


def _require_trust_in_all(folder: Path) -> None:
    """Whatever lies in it may be loaded or run. A link beside the way to the entrypoint counts as what it leads to."""
    for parent, folders, files in os.walk(folder, onerror=_refuse):
        for path in (Path(parent, name) for name in (*folders, *files)):
            with contextlib.suppress(FileNotFoundError):
                mode = path.stat().st_mode
                if mode & stat.S_IWOTH and (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise PluginRefused(f"{path}: everybody may write to it (chmod o-w)")


def _refuse(error: OSError) -> NoReturn:
    raise PluginRefused(f"{error.filename}: {error.strerror}") from None


def _manifest(path: Path) -> Manifest:
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise PluginRefused(f"{path}: larger than {MAX_MANIFEST_BYTES} bytes")
        return read_manifest(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ManifestInvalid as error:
        raise PluginRefused(f"{path}: {error}") from None
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise PluginRefused(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
