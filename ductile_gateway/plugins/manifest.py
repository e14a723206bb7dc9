"""The manifest of a plugin folder (Ductile plugin protocol v2), validated at least as strictly as Ductile does.

Unknown keys are ignored; a key without a value counts as absent. Names become tokens of subjects and paths: lower case
letters, digits, `_` and `-`, at most 64. Our own keys are `effect` of a command, and `output` and `continues` of a
plugin (`schemas.catalog`). Ductile does not pass them on, but it does pass schemas: so `output_schema` may have them,
too, as `x-effect`, `x-output` and `x-continues`.
"""

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from schemas.catalog import Effect, Output
from schemas.fields import ToolName, validation_flaws


def _inside(entrypoint: str) -> str:
    path = PurePosixPath(entrypoint)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("must be a path below the plugin's folder, without '..'")
    return entrypoint


def _full_schema(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Expands Ductile's short form `{url: string}` to a JSON Schema; returns a schema with a `type` unchanged, and
    gives one to a schema with `properties`."""
    if not schema or "type" in schema:
        return schema
    known = schema.get("properties")
    if isinstance(known, dict) and not isinstance(known.get("type"), str):
        return {"type": "object", **schema}
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


class PluginCommand(_Section):
    """`type`: the tier. `idempotent`: repeating it does no harm."""

    name: ToolName
    type: Literal["read", "write"]
    description: str = ""
    idempotent: bool = False
    effect: Effect | None = None
    input_schema: Schema = Field(default_factory=dict)
    output_schema: dict[str, JsonValue] = Field(default_factory=dict)


class ConfigKeys(_Section):
    required: tuple[str, ...] = ()


class PluginDescription(_Section):
    """The part of a manifest that agents need, whether the gateway or a Ductile starts the plugin."""

    name: ToolName
    description: str = ""
    output: Output | None = None
    continues: bool = True
    commands: Annotated[tuple[PluginCommand, ...], Field(min_length=1)]

    def command(self, name: str) -> PluginCommand | None:
        return next((command for command in self.commands if command.name == name), None)


class PluginManifest(PluginDescription):
    manifest_spec: Literal["ductile.plugin"]
    manifest_version: Literal[1]
    protocol: Literal[2]
    version: Annotated[str, Field(coerce_numbers_to_str=True)]
    entrypoint: Annotated[str, AfterValidator(_inside)]
    config_keys: ConfigKeys = ConfigKeys()
    python_packages: tuple[str, ...] = ()


def read_manifest(document: object) -> PluginManifest:
    """Raises ValueError that names each field, and what is wrong with it."""
    try:
        manifest = PluginManifest.model_validate(document)
    except ValidationError as error:
        raise ValueError(validation_flaws(error, whole="manifest", most=None)) from None
    names = [command.name for command in manifest.commands]
    if len(set(names)) < len(names):
        raise ValueError("commands: two commands have the same name")
    return manifest
