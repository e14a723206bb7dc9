"""What belongs to the services: the files beside the settings that say who they are, and the stores that those name.

The agent has settings of its own, which the gateway does not know; they lie in the same file, or beside it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from groundwork.service.strict_yaml import NotYaml, parse

PRIVATE = ("*.yaml", "*.yml", "*.env", ".env*", "*.keys*", "*.creds")
PLACES = {"agent": ("store", "workspaces", "keys_file"), "gateway": ("store", "keys_file")}
"""The settings that name a place, by section."""
OF_A_STORE = (".keys", ".keys.anchors")
"""Beside it, also where they are made only after this is asked."""
DEFAULTS = Path(".agentic")
MOST_BYTES = 1024 * 1024


def beside(settings: Path | None) -> Iterator[Path]:
    """Those of the settings in that file, and in others of its folder; without one, of the folder we are in."""
    yield DEFAULTS
    for pattern in PRIVATE if settings else ():
        for path in settings.parent.glob(pattern) if settings else ():
            yield path
            if path.suffix in (".yaml", ".yml"):
                yield from _named_in(path)


def _named_in(path: Path) -> Iterator[Path]:
    document = _document(path)
    for section, keys in PLACES.items():
        given = document.get(section)
        if not isinstance(given, dict):
            continue
        for key in keys:
            if isinstance(place := given.get(key), str) and "\0" not in place:
                yield Path(place)
                if key == "store":
                    yield from (Path(f"{place.rstrip('/')}{ending}") for ending in OF_A_STORE)


def _document(path: Path) -> Mapping[str, Any]:
    """Empty for what cannot be read: then it is somebody else's."""
    try:
        document = parse(path.read_text(encoding="utf-8")) if path.stat().st_size < MOST_BYTES else None
    except (OSError, UnicodeError, NotYaml):
        return {}
    return document if isinstance(document, dict) else {}
