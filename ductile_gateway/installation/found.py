"""The configuration of a Ductile as it is found, with what it includes: what has to be known to add to it. Only reads.

Files are merged as Ductile merges them (`internal/config/loader.go`): lists of peers, tokens, instances and plugin
roots are put together; of plugins, names and addresses the file that comes later has the last word.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ductile_gateway.installation.yaml_lists import mapping_of
from ductile_gateway.plugins.manifest import Manifest, ManifestInvalid, read_manifest
from groundwork.service.errors import Misconfigured
from groundwork.service.strict_yaml import NotYaml, parse

MAIN = "config.yaml"
OURS = "agentic"
"""The folder of what is added, beside the main file."""
OUR_PLUGINS = frozenset({"agentic-wake", "agentic-run", "agentic-outcomes"})
GATEWAY = "agentic-gateway"
"""By which name the gateway is a peer, and an instance."""
DEFAULT_LISTEN = "127.0.0.1:8080"
DEFAULT_NAME = "ductile"
DEFAULT_INGRESS = "/ingest/peer"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MOST_MANIFEST_BYTES = 256 * 1024

Generation = Literal["m", "n"]
"""`m`: of May 2026, secrets in files and variables. `n`: newer, secrets in a vault."""


@dataclass(frozen=True, slots=True)
class Found:
    """`files`: what each file says, the main one first, those in our own folder left out."""

    main: Path
    files: Mapping[Path, Mapping[str, Any]] = field(repr=False)

    @property
    def folder(self) -> Path:
        return self.main.parent

    @property
    def name(self) -> str:
        """By which its peers know it."""
        return str(self._last("service", "name") or DEFAULT_NAME)

    @property
    def url(self) -> str:
        """Of its API, for who is on the same machine."""
        listen = str(self._last("api", "listen") or DEFAULT_LISTEN)
        host, _, port = listen.rpartition(":")
        return f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '[::]') else host}:{port}"  # noqa: S104 - what it says

    @property
    def vault(self) -> str:
        """Where the commands of its vault find it (generation n)."""
        socket = self._last("api", "management_socket")
        return f"unix://{socket}" if socket else self.url

    @property
    def has_api(self) -> bool:
        """Whether there is an API to call."""
        return bool(self._last("api", "enabled"))

    @property
    def ingress(self) -> str:
        """Where peers post their events."""
        return str(self._last("remote_ingress", "listen_path") or DEFAULT_INGRESS)

    @property
    def webhooks_listen(self) -> str | None:
        said = self._last("webhooks", "listen")
        return str(said) if said else None

    @property
    def tokens_file(self) -> Path | None:
        """The table of secrets that is read, of generation `m`."""
        return next((file for file in self.files if file.name == "tokens.yaml"), None)

    def secret_names(self) -> set[str]:
        """What `secret_ref` may name there."""
        return {str(entry.get("name")) for entry in self._all("tokens")}

    def taken(self) -> Iterator[str]:
        """What is called as something of ours would be: nothing of another's is replaced."""
        peers = {str(entry.get("name")) for entry in self._all("remote_ingress", "peers")}
        instances = {str(entry.get("name")) for entry in self._all("instances")}
        yield from (f"a relay peer {name}" for name in sorted(peers & {GATEWAY}))
        yield from (f"an instance {name}" for name in sorted(instances & {GATEWAY}))
        yield from (
            f"a plugin {name}" for name in sorted(OUR_PLUGINS & (self._plugins().keys() | self.manifests().keys()))
        )

    def uses_of_ours(self) -> Iterator[str]:
        """What of theirs would miss ours."""
        for file, said in self.files.items():
            for pipeline in _list(said, "pipelines"):
                if isinstance(pipeline, dict) and _names_ours(pipeline.get("steps")):
                    yield f"the pipeline {pipeline.get('name')} in {file} uses what was installed"
            for endpoint in _list(said, "webhooks", "endpoints"):
                if isinstance(endpoint, dict) and endpoint.get("plugin") in OUR_PLUGINS:
                    yield f"the webhook {endpoint.get('name')} in {file} uses what was installed"

    def generation(self) -> Generation | None:
        """By what only one of the two takes; None where nothing tells."""
        tokens = list(self._all("api", "auth", "tokens"))
        if (
            any("secret_ref" in entry for entry in tokens)
            or self._last("secrets")
            or self._last("service", "admission")
        ):
            return "n"
        return "m" if any("token" in entry for entry in tokens) or self.tokens_file else None

    def manifests(self) -> dict[str, Manifest]:
        """Of the plugins that can be called, also by an alias; those that cannot be read are left out."""
        roots = [
            self.folder / str(root).strip() for said in self.files.values() for root in _list(said, "plugin_roots")
        ]
        folders = [folder for root in roots if root.is_dir() for folder in sorted(root.iterdir())]
        found = {manifest.name: manifest for folder in folders if (manifest := _manifest(folder / "manifest.yaml"))}
        aliases = {
            name: found[uses]
            for name, said in self._plugins().items()
            if isinstance(said, dict) and (uses := said.get("uses")) in found
        }
        return found | aliases

    def _plugins(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for said in self.files.values():
            plugins = said.get("plugins")
            merged |= plugins if isinstance(plugins, dict) else {}
        return merged

    def _last(self, *keys: str) -> Any:
        values = [value for said in self.files.values() if (value := at(said, *keys))]
        return values[-1] if values else None

    def _all(self, *keys: str) -> Iterator[Mapping[str, Any]]:
        for said in self.files.values():
            yield from (entry for entry in _list(said, *keys) if isinstance(entry, dict))


def find(place: Path) -> Found:
    """The configuration in a folder, or of which this is the main file. Raises Misconfigured."""
    main = place / MAIN if place.is_dir() else place
    if not main.is_file():
        raise Misconfigured(
            f"there is no {main}: give the folder of Ductile's {MAIN}, such as ~/.config/ductile; "
            "where there is no Ductile yet, deploy/ductile/README.md begins with one"
        )
    main = main.resolve()
    files: dict[Path, Mapping[str, Any]] = {}
    _read(main, files, main.parent / OURS)
    return Found(main, files)


def _read(file: Path, files: dict[Path, Mapping[str, Any]], ours: Path) -> None:
    if file in files or file.is_relative_to(ours):
        return
    files[file] = read_yaml(file)
    for named in _list(files[file], "include"):
        included = file.parent / os.path.expandvars(str(named))
        for each in sorted(included.glob("*.yaml")) if included.is_dir() else [included]:
            if not each.is_relative_to(ours):
                _read(each.resolve(), files, ours)


def read_yaml(file: Path) -> dict[str, Any]:
    """What a file of the configuration says. Raises Misconfigured."""
    try:
        return mapping_of(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise Misconfigured(f"{file} is not text: an encrypted configuration is to be changed by hand") from None
    except Misconfigured as error:
        raise Misconfigured(f"{file}: {error}") from None


def _names_ours(steps: Any) -> bool:
    if isinstance(steps, dict):
        relay = steps.get("relay")
        to = relay.get("to") if isinstance(relay, dict) else None
        return steps.get("uses") in OUR_PLUGINS or to == GATEWAY or any(map(_names_ours, steps.values()))
    return isinstance(steps, list) and any(map(_names_ours, steps))


def _manifest(file: Path) -> Manifest | None:
    try:
        if file.stat().st_size > MOST_MANIFEST_BYTES:
            return None
        return read_manifest(parse(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, NotYaml, ManifestInvalid):
        return None


def at(said: Any, *keys: str) -> Any:
    """What stands there; None where nothing does."""
    for key in keys:
        said = said.get(key) if isinstance(said, dict) else None
    return said


def _list(said: Mapping[str, Any], *keys: str) -> list[Any]:
    found = at(said, *keys)
    return found if isinstance(found, list) else []
