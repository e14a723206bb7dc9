"""Discovers plugin folders, and checks them before anything in them is run.

A root holds one folder per plugin, each with a `manifest.yaml`, or is one. Like Ductile we refuse world-writable
folders and links, and besides any world-writable file of a plugin: its writer could run code as us.
"""

import contextlib
import logging
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, requires
from pathlib import Path

from pydantic import JsonValue

from ductile_gateway.plugins.manifest import PluginManifest, read_manifest
from groundwork.service.errors import Misconfigured
from groundwork.service.program import DISTRIBUTION
from groundwork.service.strict import NotYaml, parse
from schemas import subjects
from schemas.values import dataclass

MANIFEST = "manifest.yaml"
NOT_FOR_US = (*subjects.OUR_OWN_ROUTES, "ductile-look")
FROM_HERE = ("./", "../", "~/")
ALL = "all"
_OF_AN_EXTRA = re.compile(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]")

Config = Mapping[str, JsonValue]

log = logging.getLogger(__name__)


class PluginRefused(Exception):
    """The message names the file and the reason. `optional`: name of a plugin that only lacks an extra of ours."""

    def __init__(self, why: str, optional: str = "") -> None:
        super().__init__(why)
        self.optional = optional


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    manifest: PluginManifest
    folder: Path
    entrypoint: Path
    config: Config


@dataclass(frozen=True, slots=True)
class Discovered:
    plugins: Mapping[str, InstalledPlugin]
    left_out: Mapping[str, PluginRefused]


def discover_plugins(
    roots: Iterable[Path], config_by_plugin: Mapping[str, Config], *, search: str | None = None
) -> Discovered:
    """The first of two plugins with the same name counts. `search`: PATH for interpreters. Raises Misconfigured."""
    found: dict[str, InstalledPlugin] = {}
    refusals = list[PluginRefused]()
    for folder in _folders(roots):
        try:
            plugin = _installed(folder, config_by_plugin, search)
        except PluginRefused as refusal:
            refusals.append(refusal)
            continue
        except OSError as error:
            refusals.append(PluginRefused(f"{error.filename or folder}: {error.strerror}"))
            continue
        first = found.setdefault(name := plugin.manifest.name, plugin)
        if first is not plugin:
            why = f"{folder}: {name} was found first in {first.folder}: give one another `name`"
            refusals.append(PluginRefused(why))
    for name in config_by_plugin.keys() - found.keys():
        log.warning("configuration for plugin %s, which is not installed or was left out", name)
    return Discovered(found, {f"plugin left out: {refusal}": refusal for refusal in refusals})


def _folders(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        try:
            if not root.is_dir():
                raise Misconfigured(f"plugin folder {root} is no folder: create it or correct the configuration")
            if root.stat().st_mode & stat.S_IWOTH:
                raise Misconfigured(f"plugin folder {root}: {_open_to_all(root)}")
            among = [root.resolve()] if is_there(root / MANIFEST) else sorted(root.resolve().iterdir())
        except OSError as error:
            raise Misconfigured(f"plugin folder {root} cannot be read: {error.strerror}") from None
        plugins = [path for path in among if path.name not in NOT_FOR_US and is_there(path / MANIFEST)]
        if not plugins:
            log.warning("no plugin is in %s: each is a folder in it, with a %s", root, MANIFEST)
        yield from plugins


def is_there(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - pathlib raises where it may not look, such as in lost+found


def _installed(folder: Path, config_by_plugin: Mapping[str, Config], search: str | None) -> InstalledPlugin:
    require_trust(folder)
    require_trust(folder / MANIFEST)
    manifest = manifest_in(folder / MANIFEST)
    entrypoint = folder
    for part in Path(manifest.entrypoint).parts:
        entrypoint = entrypoint / part
        require_trust(entrypoint)
    if flaw := start_flaw(entrypoint, search):
        raise PluginRefused(f"{entrypoint}: {flaw}")
    _require_trust_in_all(folder)
    _require_packages(manifest, entrypoint, search)
    try:
        config = {key: _placed(value) for key, value in config_by_plugin.get(manifest.name, {}).items()}
    except RuntimeError as error:  # the home of an unknown user
        raise PluginRefused(f"gateway.plugins.config.{manifest.name}: {error}") from None
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
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise PluginRefused(f"{path}: symbolic links are not followed in plugin folders")
    if mode & stat.S_IWOTH:
        raise PluginRefused(f"{path}: {_open_to_all(path)}")


def _require_trust_in_all(folder: Path) -> None:
    for parent, folders, files in os.walk(folder):  # what we may not read, a plugin of ours may not, either
        for path in (Path(parent, name) for name in (*folders, *files)):
            with contextlib.suppress(OSError):  # gone, or a link that leads nowhere
                mode = path.stat().st_mode
                if mode & stat.S_IWOTH and (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise PluginRefused(f"{path}: {_open_to_all(path)}")


def _open_to_all(path: Path) -> str:
    return f"everybody may write to it (chmod o-w {shlex.quote(str(path))})"


def manifest_in(path: Path) -> PluginManifest:
    """Raises PluginRefused."""
    try:
        return read_manifest(parse(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, NotYaml) as error:
        raise PluginRefused(f"{path}: cannot be used: {' '.join(str(error).split())}") from None


FIRST_BYTES = 512
LOADED = {*sys.stdlib_module_names, "ductile_gateway", "groundwork"}
PYTHON = re.compile(r"python(3(\.\d+)?)?")


def start_flaw(entrypoint: Path, search: str | None = None) -> str | None:
    """Returns the reason why it cannot be started, and the remedy; None if it can. `search`: value of PATH."""
    quoted = shlex.quote(str(entrypoint))
    if not entrypoint.is_file() or not os.access(entrypoint, os.X_OK):
        return f"the entrypoint must be an executable file (chmod 755 {quoted})"
    first = _line_1(entrypoint)
    if "\0" in first:  # compiled
        return None
    words = first.removeprefix("#!").split()
    if not first.startswith("#!") or not words:
        return "nothing says what runs it: write `#!/usr/bin/env bash` as line 1, or python3, or what runs it"
    if first.endswith("\r"):
        return f"its lines end as on Windows, so line 1 is not understood (sed -i 's/\\r$//' {quoted})"
    words[0] = str(Path("/", words[0]))  # only env looks on PATH
    if Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if words and shutil.which(words[0], path=search) is None:
        return f"its line 1 wants {words[0]}, which is not here or not on PATH: install it"
    return None


def _require_packages(manifest: PluginManifest, entrypoint: Path, search: str | None) -> None:
    lacking = [name for name in manifest.python_packages if not _is_here(name)]
    python = _python_of(entrypoint, search) if lacking else ""
    if python:  # else another Python runs it
        names, extras = " ".join(map(shlex.quote, lacking)), dict.fromkeys(map(_extra_with, lacking))
        ours = f"pip install '{DISTRIBUTION}[{','.join(extras)}]'" if all(extras) else ""
        theirs = f"{shlex.quote(python)} -m pip install {names}"
        why = f"{entrypoint}: {python} does not have {names}: {ours or theirs}"
        raise PluginRefused(why, optional=manifest.name if ours else "")


def _extra_with(package: str) -> str:
    """Our extra that installs `package`; empty if none does."""
    try:
        found = (_OF_AN_EXTRA.match(line) for line in requires(DISTRIBUTION) or ())
    except PackageNotFoundError:
        return ""
    return next((one[2] for one in found if one and one[1] == package and one[2] != ALL), "")


def runs_on_our_python(entrypoint: Path, search: str | None = None) -> bool:
    """True if our own Python runs it without options, and no module beside it shadows one that guards load."""
    beside = {path.stem for path in entrypoint.parent.iterdir()}
    is_plain = " -" not in _line_1(entrypoint) and beside.isdisjoint(LOADED)
    return is_plain and bool(_python_of(entrypoint, search))


def _python_of(entrypoint: Path, search: str | None) -> str:
    first = _line_1(entrypoint)
    python = shutil.which(first.removeprefix("#!").split()[-1], path=search) if first.startswith("#!") else None
    is_python = python and PYTHON.fullmatch(Path(python).name) and Path(python).parent == Path(sys.executable).parent
    return python if python and is_python else ""


def _line_1(entrypoint: Path) -> str:
    """Returns line 1; of a compiled program all of the first bytes."""
    with entrypoint.open("rb") as file:
        beginning = file.read(FIRST_BYTES)
    return (beginning if b"\0" in beginning else beginning.split(b"\n", 1)[0]).decode(errors="replace")


def _is_here(package: str) -> bool:
    return next(iter(Distribution.discover(name=package)), None) is not None
