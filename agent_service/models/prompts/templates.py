"""The prompt's templates: files beside this one, versioned by a hash over all of them. Pure but for reading them.

Values are put in, never evaluated; a name that is missing is an error. What others wrote goes through `harmless`, so
that it cannot close the tags around it.
"""

import hashlib
import json
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from agent_service.core.notes import clipped, harmless

FOLDER = "templates"


@cache
def version() -> str:
    """SHA-256 over the names and texts of all templates, its first 16 digits."""
    digest = hashlib.sha256()
    for name, text in sorted(_texts().items()):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


def rendered(name: str, **values: Any) -> str:
    """Template `name` with `values`. Raises jinja2.UndefinedError for a value that it needs and does not get."""
    return _environment().get_template(f"{name}.md").render(**values).strip()


def canonical(value: Any) -> str:
    """JSON that is the same for the same value, so that a provider's cache knows it again."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(", ", ": "))


@cache
def _texts() -> dict[str, str]:
    folder = resources.files(__package__) / FOLDER
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".md")}


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(_texts()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 # the text is for a model: `harmless` takes the tags out of what others wrote
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(harmless=harmless, clipped=clipped, canonical=canonical)
    return environment
