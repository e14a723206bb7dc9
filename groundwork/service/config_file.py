"""Settings of one service: a YAML file, overridden by the environment, checked by a pydantic model.

- A service reads its own top-level section; keys of the shared section `nats:` fill those missing in its own `nats`.
- `${VAR}` and `${VAR:-default}` are replaced after parsing, so that a value cannot add keys. `$${` is `${`.
- `PREFIX_HTTP__PORT=1` overrides `http: {port: …}`; lists and mappings are JSON there.
- A secret may come from a file: `token_file: /run/secrets/x` for a field `token`, or `PREFIX_…_FILE` (secret.py).
- Unknown keys are refused at every depth. All problems are reported together, each with its place and without values.

pydantic-settings has no `${VAR}` and no places, accepts repeated keys, unknown variables, and a secret beside its file,
and words its errors for programmers.
"""

import difflib
import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails

from groundwork.service.errors import Misconfigured, plain_words
from groundwork.service.secret import UNFIT, InFile
from groundwork.service.strict import NotYaml, parse

M = TypeVar("M", bound=BaseModel)
Keys = tuple[str, ...]


FILE, DEV_FILE = Path("agentic.yaml"), Path(".agentic") / "agentic.yaml"


def nearby(named: Path | None, *files: Path) -> Path | None:
    """`named`, else the first of `files` that is there, by default `FILE`; a link that leads nowhere counts."""
    return named or next(filter(os.path.lexists, files or (FILE,)), None)


def written(form: str, words: str) -> AfterValidator:
    """Accepts text that matches `form` as a whole; `words` describe the form in the error."""
    pattern = re.compile(form)

    def checked(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"has to be {words}")
        return text

    return AfterValidator(checked)


class Section(BaseModel):
    """Part of the settings, which accepts the forms listed at the top of this module. A default is made by
    `model_construct`: a start then builds only the schema of the whole."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _as_meant(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        kinds = {name: list(_kinds(info.annotation)) for name, info in cls.model_fields.items()}
        meant = {name: _meant(value, kinds.get(name, ())) for name, value in given.items()}
        for name in (name for name in kinds if SecretStr in kinds[name] and f"{name}_file" in given):
            meant[name] = InFile(meant.pop(f"{name}_file"), beside=name in given)
        return meant

    def secrets(self) -> tuple[str, ...]:
        """Values that no log may show, of this section and those within it."""
        values = [value for _, value in leaves(vars(self))]
        within = (secret for section in values if isinstance(section, Section) for secret in section.secrets())
        return (*(secret.get_secret_value() for secret in values if isinstance(secret, SecretStr)), *within)


Port = Annotated[int, Field(ge=0, le=65535)]


class ServerSettings(Section):
    """Address of a server, and the names of it that it accepts in the header Host."""

    host: str = "127.0.0.1"
    port: Port
    allowed_hosts: tuple[Annotated[str, AfterValidator(str.lower)], ...] = ("127.0.0.1", "localhost", "[::1]")


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "text"] = "json"


def _meant(value: Any, kinds: Collection[Any]) -> Any:
    if isinstance(value, bool) and bool not in kinds and not {int, float}.isdisjoint(kinds):
        return str(value)  # pydantic takes yes and no for numbers
    if value == "" and Path in kinds:
        return ()  # no path, and thus refused: pydantic takes it for the current folder
    if isinstance(value, str) and value[:1] in ("[", "{") and kinds and {str, SecretStr}.isdisjoint(kinds):
        with suppress(ValueError):
            return json.loads(value)
    return value


class WrongSettings(Misconfigured):
    """`problems`: one line each, with place, fault and expected input."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n  ".join(("the settings cannot be used:", *self.problems)))


def _kinds(annotation: Any) -> Iterator[Any]:
    """Alternatives of a type: `SecretStr | None` has two."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        is_annotated = get_origin(annotation) is Annotated
        for alternative in get_args(annotation)[: 1 if is_annotated else None]:
            yield from _kinds(alternative)
    else:
        yield annotation


def _kinds_at(annotation: Any, keys: Keys) -> Iterator[Any]:
    for kind in _kinds(annotation):
        inner = [argument for argument in get_args(kind) if argument is not Ellipsis]
        if not keys:
            yield kind
        elif fields := getattr(kind, "model_fields", None):
            name = keys[0] if keys[0] in fields else keys[0].removesuffix("_file")
            yield from _kinds_at(fields[name].annotation, keys[1:]) if name in fields else ()
        elif inner:
            yield from _kinds_at(inner[-1], keys[1:])


def _written(error: ErrorDetails, node: Any) -> Iterator[str]:
    """Keys of an error's place, without pydantic's names for alternatives of a type."""
    for part in error["loc"]:
        inner = _children(node)
        if (name := part if part in inner else f"{part}_file") in inner:
            node = inner[name]
            yield str(name)
    if error["type"] == "missing":
        yield str(error["loc"][-1])


def _children(node: Any) -> Mapping[Any, Any]:
    return node if isinstance(node, Mapping) else dict(enumerate(node)) if isinstance(node, list | tuple) else {}


def leaves(node: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Values of a document, each with its place."""
    for key, value in _children(node).items():
        place = *keys, str(key)
        yield from leaves(value, place) if isinstance(value, Mapping | list | tuple) else [(place, value)]


SHARED_SECTION = "nats"
OF_PLUGINS = ("plugins", "config")

_VARIABLE = re.compile(r"(\$?)\$\{([^}]*)\}")


def load(
    model: type[M], section: str, path: Path | None, environ: Mapping[str, str], *, other_sections: Collection[str] = ()
) -> M:
    """Raises WrongSettings with all problems. `path`: None for no file. `other_sections` belong to other programs; any
    other section is an unknown key, as is a variable that begins as the section's do and has no field."""
    reading = _Reading(str(path or "environment"), environ, (section,), f"{section.upper()}_")
    document = reading.mapping(parsed(path) if path else None, ())
    known = {section, SHARED_SECTION, *other_sections}
    for key in document.keys() - known:
        reading.report_unknown((key,), known)
    own = reading.mapping(document.get(section), (section,))
    if SHARED_SECTION in model.model_fields:
        shared = reading.mapping(document.get(SHARED_SECTION), (SHARED_SECTION,))
        nearer = reading.mapping(own.get(SHARED_SECTION), (section, SHARED_SECTION))
        for key in shared.keys() - nearer.keys():
            reading.origins[section, SHARED_SECTION, key] = reading.place((SHARED_SECTION, key))
        own |= {SHARED_SECTION: shared | nearer}
    settings = reading.validated(model, reading.overridden(reading.interpolated(own, (section,))))
    if settings is None or reading.found:
        raise WrongSettings(reading.found.values())
    return settings


def file_section(path: Path | None, *names: str) -> dict[str, Any]:
    """Section of the file, unchecked; empty if it is missing. Raises WrongSettings."""
    reading, found = _Reading(str(path), {}), parsed(path) if path else None
    for depth, name in enumerate(names):
        found = reading.mapping(found, names[:depth]).get(name)
    return reading.mapping(found, names)


def interpolated(document: Any, environ: Mapping[str, str]) -> Any:
    return _Reading("", environ).interpolated(document, ())


def parsed(path: Path) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"cannot be read ({error.strerror}); name a readable file"
    except UnicodeDecodeError:
        problem = "is not UTF-8; save it as UTF-8"
    except NotYaml as error:
        problem = str(error)
    raise WrongSettings([f"{path}: {problem}"])


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads settings whose keys begin at `root` and that variables beginning with `env_prefix` override."""

    file: str
    environ: Mapping[str, str]
    root: Keys = ()
    env_prefix: str = ""
    origins: dict[Keys, str] = field(default_factory=dict)
    """Places of values that come from the environment or the shared section."""
    found: dict[Keys, str] = field(default_factory=dict)
    """First problem of each key: further ones mostly follow from it."""

    def place(self, keys: Keys) -> str:
        for length in range(len(keys), 0, -1):
            if origin := self.origins.get(keys[:length]):
                return ".".join((origin, *keys[length:]))
        return f"{self.file}: {'.'.join(keys) or 'top level'}"

    def report(self, keys: Keys, problem: str) -> None:
        self.found.setdefault(keys, f"{self.place(keys)}: {problem}")

    def report_unknown(self, keys: Keys, known: Collection[str]) -> None:
        near = difflib.get_close_matches(keys[-1], known, n=1)
        advice = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
        self.report(keys, f"no such setting; {advice}")

    def mapping(self, node: Any, keys: Keys) -> dict[str, Any]:
        if not isinstance(node, dict | None):
            raise WrongSettings([f"{self.place(keys)}: expected settings as `key: value` lines"])
        return {str(key): value for key, value in (node or {}).items()}

    def interpolated(self, node: Any, keys: Keys) -> Any:
        if isinstance(node, str):
            return _VARIABLE.sub(lambda found: self.variable(found, keys), node)
        values = {str(key): self.interpolated(value, (*keys, str(key))) for key, value in _children(node).items()}
        return values if isinstance(node, dict) else list(values.values()) if isinstance(node, list) else node

    def variable(self, found: re.Match[str], keys: Keys) -> str:
        name, has_default, default = found[2].partition(":-")
        if found[1]:
            return found[0][1:]
        if not name.isidentifier():
            self.report(keys, "write ${NAME} or ${NAME:-default}, and $${ where the text itself has ${")
        elif not has_default and name not in self.environ:
            self.report(keys, f"{name} is not set; set it in the environment, or write ${{{name}:-default}}")
        return self.environ.get(name) or default

    def overridden(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Applies the environment; if one variable's name begins another's, the longer one wins."""
        for name in sorted(name for name in self.environ if name.startswith(self.env_prefix)):
            *parents, last = name.removeprefix(self.env_prefix).lower().split("__")
            node = raw
            for depth, parent in enumerate(parents, 1):
                if not isinstance(node.setdefault(parent, {}), dict):
                    node[parent] = {}
                    self.origins[*self.root, *parents[:depth]] = name
                node = node[parent]
            node[last] = self.environ[name]
            self.origins[*self.root, *parents, last] = name
        return raw

    def validated(self, model: type[M], raw: dict[str, Any]) -> M | None:
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
        found = defaultdict[Keys, dict[str, None]](dict)
        for one in errors:
            keys = tuple(_written(one, raw))
            found[keys][self._text(model, keys, one)] = None
        for keys, texts in found.items():
            # A setting with several forms has errors of each form: the deepest ones count.
            if not any(other[: len(keys)] == keys for other in found if other != keys):
                self.report((*self.root, *keys), "; or ".join(filter(None, texts)))
        return None

    def _text(self, model: type[M], keys: Keys, error: ErrorDetails) -> str:
        kind = error["type"]
        if kind == "extra_forbidden":
            known = {name for at in _kinds_at(model, keys[:-1]) for name in getattr(at, "model_fields", ())}
            self.report_unknown((*self.root, *keys), known)
            return ""
        if kind == "missing":
            return "required; set it here"
        # The text of a custom validator could quote the secret.
        may_quote = SecretStr in _kinds_at(model, keys) and kind not in (UNFIT, "string_type")
        return "is not accepted here" if may_quote else plain_words(error["msg"])
