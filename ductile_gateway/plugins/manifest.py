"""The manifest of a plugin folder (Ductile plugin protocol v2), read as strictly as Ductile does or stricter.

Unknown keys are tolerated, as there; a key without a value counts as absent. Names become tokens of subjects and paths:
lower case letters, digits, `_` and `-`, at most 64. Beyond Ductile's keys a command says its `effect`, and a plugin its
`output` and whether it `continues` (`schemas.catalog`). Ductile keeps these to itself, but passes schemas on: so an
`output_schema` may say them too, as `x-effect`, `x-output` and `x-continues`.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from schemas.catalog import Effect, Output
from schemas.fields import LONGEST_PLACE, ToolName, rule_of

Keys = tuple[int | str, ...]

WOULD_DO = {
    "manifest_spec": "ductile.plugin",
    "manifest_version": "1",
    "protocol": "2",
    "name": "my-tool",
    "version": "0.1.0",
    "entrypoint": "run.py",
    "commands": "[{name: handle, type: read}]",
    "commands.name": "handle",
    "commands.type": "read",
}
SAYS_MORE = {"commands.type": ", or `type: write` where it changes something"}
ALIKE = 0.75


def told(error: ValidationError, document: object, would_do: Mapping[str, str] = WOULD_DO) -> str:
    if not isinstance(document, dict):
        return "it holds no `key: value` lines: docs/TOOLS.md shows what it needs"
    every = error.errors(include_url=False, include_input=False)
    # A list whose items are flawed is told to be empty, too.
    found = [flaw for flaw in every if flaw["type"] != "too_short" or not _has_inner(flaw["loc"], every)]
    return "; ".join(_told(flaw, document, would_do) for flaw in found)


def misspelt(document: object, known: type[BaseModel], *, also: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Keys of the document that look like one that is known, which it does not have; with that one."""
    names = {*known.model_fields, *also}
    given = [key for key in document if isinstance(key, str)] if isinstance(document, dict) else []
    for key in given:
        close = difflib.get_close_matches(key, names.difference(given), n=1, cutoff=ALIKE)
        if key not in names and close:
            yield key, close[0]


def _has_inner(place: Keys, flaws: Sequence[Any]) -> bool:
    return any(len(flaw["loc"]) > len(place) and flaw["loc"][: len(place)] == place for flaw in flaws)


def _told(flaw: Any, document: object, would_do: Mapping[str, str]) -> str:
    place: Keys = flaw["loc"]
    said = rule_of(flaw["msg"])
    named, key = ".".join(map(str, place))[:LONGEST_PLACE], ".".join(part for part in place if isinstance(part, str))
    if key not in would_do or not isinstance(place[-1], str):
        return f"{named or 'manifest'}: {said}"
    line = f"`{place[-1]}: {would_do[key]}`{SAYS_MORE.get(key, '')}"
    if flaw["type"] == "missing":
        return f"{named} is missing: add {line}{_instead_of(place, document)}"
    if flaw["type"] == "literal_error":
        return f"{named} is something else: write {line}"
    return f"{named}: {said}, such as {line}"


def _instead_of(place: Keys, document: object) -> str:
    section = document
    for part in place[:-1]:
        try:
            section = section[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return ""
    given = [key for key in section if isinstance(key, str)] if isinstance(section, dict) else []
    close = difflib.get_close_matches(str(place[-1]), given, n=1, cutoff=ALIKE)
    return f" (is `{close[0]}` a misspelling of it?)" if close and close[0] != place[-1] else ""


class ManifestInvalid(ValueError):
    """The manifest cannot be used; the message names each field and what is wrong with it."""


def _inside(entrypoint: str) -> str:
    path = PurePosixPath(entrypoint)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("must be a path below the plugin's folder, without '..'")
    return entrypoint


def _full_schema(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Ductile's short form `{url: string}` written out as a JSON Schema; a schema with a `type` stays as it is."""
    if not schema or "type" in schema:
        return schema
    properties: dict[str, JsonValue] = {
        name: {"type": value} if isinstance(value, str) else value for name, value in schema.items()
    }
    return {"type": "object", "properties": properties}


Schema = Annotated[dict[str, JsonValue], AfterValidator(_full_schema)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, section: object) -> object:
        if not isinstance(section, dict):
            return section
        return {key: value for key, value in section.items() if value is not None}


class Command(_Section):
    """One thing the plugin can do. `type` is the tier; `idempotent` says that repeating it does no harm."""

    name: ToolName
    type: Literal["read", "write"]
    description: str = ""
    idempotent: bool = False
    retry_safe: bool = False
    effect: Effect | None = None
    input_schema: Schema = Field(default_factory=dict)
    output_schema: dict[str, JsonValue] = Field(default_factory=dict)


class ConfigKeys(_Section):
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


class Manifest(_Section):
    manifest_spec: Literal["ductile.plugin"]
    manifest_version: Literal[1]
    protocol: Literal[2]
    name: ToolName
    version: Annotated[str, Field(coerce_numbers_to_str=True)]
    entrypoint: Annotated[str, AfterValidator(_inside)]
    description: str = ""
    output: Output | None = None
    continues: bool = True
    commands: Annotated[tuple[Command, ...], Field(min_length=1)]
    config_keys: ConfigKeys = ConfigKeys()
    python_packages: tuple[str, ...] = ()

    def command(self, name: str) -> Command | None:
        return next((command for command in self.commands if command.name == name), None)


def read_manifest(document: object, would_do: Mapping[str, str] = WOULD_DO) -> Manifest:
    """The manifest in a parsed YAML document. `would_do`: values to advise. Raises ManifestInvalid."""
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as error:
        raise ManifestInvalid(told(error, document, would_do)) from None
    names = [command.name for command in manifest.commands]
    if len(set(names)) < len(names):
        raise ManifestInvalid("commands: two commands have the same name")
    return manifest
