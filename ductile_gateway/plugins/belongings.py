"""What belongs to the services: the files beside the settings that say who they are, and the places that those name.

The agent has settings of its own, which the gateway does not know; they lie in the same file, or beside it.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from groundwork.service.config_file import OF_PLUGINS, as_given
from groundwork.service.strict import NotYaml, parse

PRIVATE = ("*.yaml", "*.yml", "*.env", ".env*", "*.keys*", "*.creds", "*.nk", "*.conf")
PLACES = {"agent": ("store", "cache", "workspaces"), "gateway": ("store", "cache")}
FILES = ("_FILE", "TLS_KEY")
"""How settings end that name a file with a secret in it, as variables have them."""
VARIABLES = ("AGENT_", "GATEWAY_")
OF_A_STORE = (".keys",)
"""Beside it, also where they are made only after this is asked."""
DEFAULTS = Path(".agentic")
OF_NATS = re.compile(r"^\s*[\"']?store_?dir[\"']?\s*[:=]?\s*[\"']?([^\"'\s#]+)", re.MULTILINE | re.IGNORECASE)
MOST_BYTES = 1024 * 1024


def apart(settings: Path | None) -> Iterator[Path]:
    yield DEFAULTS
    if settings and (folder := settings.resolve().parent) != Path(folder.anchor):
        yield folder


def beside(settings: Path | None, environ: Mapping[str, str]) -> Iterator[Path]:
    """Places that only the services may reach, by the settings file, others in its folder and the environment."""
    yield from (Path(environ[name]) for name in environ if name.startswith(VARIABLES) and name.endswith(FILES))
    for pattern in PRIVATE if settings else ():
        for path in settings.parent.glob(pattern) if settings else ():
            yield path
            if path.suffix in (".yaml", ".yml"):
                yield from (Path(place) for place in _named_in(path, environ) if "\0" not in place)
            elif path.suffix == ".conf":
                yield from (path.parent / found for found in OF_NATS.findall(_text(path)))


def _named_in(path: Path, environ: Mapping[str, str]) -> Iterator[str]:
    try:
        document = as_given(parse(_text(path)), environ)
    except NotYaml:
        return
    for section, keys in PLACES.items():
        given = document.get(section) if isinstance(document, dict) else None
        places = {key: given[key] for key in keys if isinstance(given.get(key), str)} if isinstance(given, dict) else {}
        yield from places.values()
        yield from (f"{places[key].rstrip('/')}{ending}" for key in places if key == "store" for ending in OF_A_STORE)
    yield from _files(document)


def _files(node: Any, above: str = "") -> Iterator[str]:
    items = node.items() if isinstance(node, dict) else [("", each) for each in node] if isinstance(node, list) else ()
    for key, value in items:
        if isinstance(value, str) and key.upper().endswith(FILES):
            yield value
        elif (above, key) != OF_PLUGINS:
            yield from _files(value, key)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size < MOST_BYTES else ""
    except (OSError, UnicodeError):
        return ""
