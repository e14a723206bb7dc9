"""Settings of one service: a YAML file, overridden by the environment, checked by a pydantic model.

- A service reads its own top-level section; keys of the shared section `nats:` fill those missing in its own `nats`.
- `${VAR}` and `${VAR:-default}` stand for environment variables, after parsing: a value cannot add keys. `$${` is `${`.
- `PREFIX_HTTP__PORT=1` overrides `http: {port: …}`; a list or mapping is written there as JSON.
- A secret may come from a file: `token_file: /run/secrets/x` for a SecretStr field `token`, or `PREFIX_…_FILE`. It is
  read again when the file changes. One that is empty or soon guessed is refused (secret.py).
- Unknown keys are refused at every depth. All problems are told at once, each with its place; no value is ever shown.

Not pydantic-settings: it has no `${VAR}`, no places, and no answer to repeated keys, unknown variables, or a secret's
file beside the secret.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from groundwork.service.errors import Misconfigured
from groundwork.service.secret import UNFIT, FileSecret, fault_of
from groundwork.service.strict import NotYaml, parse

NO_NUMBER = "write a number here: yes, no, true and false are none"
WORDS = {
    "path_type": "write a path here, as text",
    **dict.fromkeys(("model_type", "dict_type"), "write settings here, as `key: value` lines"),
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type"), "write a list here, as in [a, b]"),
}
"""What is expected, where pydantic says it in words of Python."""
_CONTAINERS = (list, tuple, set, frozenset, Mapping)

M = TypeVar("M", bound=BaseModel)
Keys = tuple[str, ...]


class WrongSettings(Misconfigured):
    """Settings that a person has to correct. `problems`: one line each, with place, fault and what is expected."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n  ".join(("the settings cannot be used:", *self.problems)))


@dataclass(frozen=True, slots=True)
class Problems:
    """The first problem of each key, because further ones mostly follow from it."""

    file: str
    origins: dict[Keys, str] = field(default_factory=dict)
    """Places of values that are not written in the file where their key says: environment, shared section."""
    found: dict[Keys, str] = field(default_factory=dict)

    def report(self, keys: Keys, problem: str, *, written_as: str = "") -> None:
        """`written_as`: the last key as the user wrote it, if it is another one."""
        place = self.place((*keys[:-1], written_as) if written_as else keys)
        self.found.setdefault(keys, f"{place}: {problem}")

    def report_unknown(self, keys: Keys, known: Collection[str]) -> None:
        near = difflib.get_close_matches(keys[-1], known, n=1)
        advice = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
        self.report(keys, f"no such setting; {advice}")

    def place(self, keys: Keys) -> str:
        for length in range(len(keys), 0, -1):
            if origin := self.origins.get(keys[:length]):
                return ".".join((origin, *keys[length:]))
        return f"{self.file}: {'.'.join(keys) or 'top level'}"


@dataclass(frozen=True, slots=True)
class Fields:
    """One reading of settings whose keys begin at `root`, overridden by variables that begin with `env_prefix`."""

    problems: Problems
    root: Keys
    env_prefix: str
    secrets: set[Keys] = field(default_factory=set)

    def validated(self, model: type[M], raw: Mapping[str, Any]) -> M | None:
        resolved = self._resolved(raw, model, self.root)
        try:
            return model.model_validate(resolved)
        except ValidationError as error:
            self._report(error.errors(include_url=False, include_input=False, include_context=False), resolved)
        return None

    def _report(self, errors: Iterable[ErrorDetails], resolved: dict[str, Any]) -> None:
        """Where a setting has several forms each says what it lacks: those that got furthest count, as alternatives."""
        found: dict[Keys, dict[str, None]] = {}
        for one in errors:
            keys = (*self.root, *_written(one, resolved))
            text = self._text(keys, one["type"], one["msg"].removeprefix("Value error, "))
            found.setdefault(keys, {})[text] = None
        for keys, texts in found.items():
            if not any(other[: len(keys)] == keys for other in found if other != keys):
                self.problems.report(keys, "; or ".join(texts))

    def _text(self, keys: Keys, kind: str, message: str) -> str:
        message = WORDS.get(kind, message)
        if kind == "missing":
            variable = self.env_prefix + "__".join(keys[len(self.root) :]).upper()
            return f"required; set it here or as {variable} in the environment"
        # The words of a validator of our own could quote the secret; those of pydantic do not, but are not told apart.
        return f"not accepted ({kind})" if keys in self.secrets and kind != UNFIT else message

    def _resolved(self, node: Any, annotation: Any, keys: Keys) -> Any:
        kinds = list(_kinds(annotation))
        if SecretStr in kinds:
            self._take_secret(node, keys)
        elif isinstance(node, bool) and bool not in kinds and not {int, float}.isdisjoint(kinds):
            self.problems.report(keys, NO_NUMBER)
        elif isinstance(node, str) and keys in self.problems.origins:
            node = self._from_environment(node, kinds, keys)
        if isinstance(node, dict) and (fields := _fields(kinds)):
            return self._known(node, fields, keys)
        if isinstance(node, dict):
            return {key: self._resolved(value, _item(kinds), (*keys, key)) for key, value in node.items()}
        if isinstance(node, list):
            return [self._resolved(value, _item(kinds), (*keys, str(index))) for index, value in enumerate(node)]
        return node

    def _from_environment(self, text: str, kinds: list[Any], keys: Keys) -> Any:
        if str in kinds or not any(map(_is_container, kinds)):
            return text
        try:
            return json.loads(text)
        except ValueError:
            self.problems.report(keys, 'write a list or mapping as JSON here, as in ["a", "b"] or {"a": 1}')
            return text

    def _known(self, node: dict[str, Any], fields: dict[str, Any], keys: Keys) -> dict[str, Any]:
        known: dict[str, Any] = {}
        for key, value in node.items():
            name = key.removesuffix("_file")
            if key in fields:
                known[key] = self._resolved(value, fields[key], (*keys, key))
            elif name not in fields or SecretStr not in _kinds(fields[name]):
                self.problems.report_unknown((*keys, key), fields)
            elif name in node:
                self.problems.report(
                    (*keys, name), f"also given by {self.problems.place((*keys, key))}; keep one of them"
                )
            else:
                known[name] = self._secret(value, (*keys, name), written_as=key)
        return known

    def _take_secret(self, secret: Any, keys: Keys) -> None:
        self.secrets.add(keys)
        if isinstance(secret, str) and (fault := fault_of(secret)):
            self.problems.report(keys, fault)

    def _secret(self, file: Any, keys: Keys, *, written_as: str) -> SecretStr:
        self.secrets.add(keys)
        secret = SecretStr("")
        try:
            secret = FileSecret(Path(file))
            problem = fault_of(secret.get_secret_value())
        except (OSError, TypeError, ValueError) as error:
            problem = f"cannot read a secret there ({type(error).__name__}); name a readable text file"
        if problem:
            self.problems.report(keys, problem, written_as=written_as)
        return secret


def _written(error: ErrorDetails, node: Any) -> Iterator[str]:
    """The place of an error without the names that pydantic gives to the alternatives of a type."""
    for part in error["loc"]:
        inner = node if isinstance(node, dict) else dict(enumerate(node)) if isinstance(node, list) else {}
        if part in inner:
            node = inner[part]
            yield str(part)
    if error["type"] == "missing":
        yield str(error["loc"][-1])


def _kinds(annotation: Any) -> Iterator[Any]:
    """The alternatives of a type: `SecretStr | None` has two."""
    if get_origin(annotation) in (Union, UnionType):
        for alternative in get_args(annotation):
            yield from _kinds(alternative)
    elif get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    else:
        yield annotation


def _fields(kinds: list[Any]) -> dict[str, Any]:
    models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return {name: info.annotation for model in models for name, info in model.model_fields.items()}


def _is_container(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, _CONTAINERS)


def _item(kinds: list[Any]) -> Any:
    for kind in filter(_is_container, kinds):
        arguments = [argument for argument in get_args(kind) if argument is not Ellipsis]
        return arguments[-1] if arguments else Any
    return Any


SHARED_SECTION = "nats"
SECRETS = frozenset({"token", "secret", "previous_secret", "password", "api_key"})
OF_PLUGINS = ("plugins", "config")

_VARIABLE = re.compile(r"(\$?)\$\{([^}]*)\}")


def load(
    model: type[M],
    *,
    path: Path | None,
    section: str | None,
    env_prefix: str,
    environ: Mapping[str, str],
    other_sections: Collection[str] = (),
) -> M:
    """The settings as a `model`; raises WrongSettings with all problems. `path`: None for no file. `section`: None if
    the whole file is this model's. `other_sections` belong to other programs; any further one is an unknown key, as is
    a variable with the prefix and no field."""
    root = (section,) if section else ()
    problems = Problems(str(path or "environment"))
    reading = _Reading(problems, root, env_prefix, environ)
    raw = reading.mapping(_parsed(path) if path else None, ())
    if section:
        reading.refuse_unknown(raw, {section, SHARED_SECTION, *other_sections})
        raw = reading.own_section(raw, shares=SHARED_SECTION in model.model_fields)
    raw = reading.interpolated(raw, root)
    reading.override(raw)
    settings = Fields(problems, root, env_prefix).validated(model, raw)
    if settings is None or problems.found:
        raise WrongSettings(problems.found.values())
    return settings


def secrets_in(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Secrets of all programs of the file, by place (`gateway.ductile.token`), but for those of plugins' configuration:
    a plugin may well have the token that opens us."""
    whole = _Reading(Problems(str(path)), (), "", environ).interpolated(_parsed(path), ())
    return {".".join(keys): secret for keys, secret in _secrets(whole, ()) if OF_PLUGINS not in pairwise(keys)}


def as_given(document: Any, environ: Mapping[str, str]) -> Any:
    return _Reading(Problems(""), (), "", environ).interpolated(document, ())


def _secrets(node: Any, keys: Keys) -> Iterator[tuple[Keys, str]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        named = str(value.get("name", key) if isinstance(value, dict) else key)
        name = named.removesuffix("_file")
        if name in SECRETS and isinstance(value, str):
            secret = value if name == named else _in_file(value)
            yield from [((*keys, name), secret)] if secret else ()
        yield from _secrets(value, (*keys, named if isinstance(node, list) else str(key)))


def _in_file(file: str) -> str:
    """Empty where it cannot be read, which is told to whoever the secret is for."""
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def _parsed(path: Path) -> Any:
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
    problems: Problems
    root: Keys
    env_prefix: str
    environ: Mapping[str, str]

    def mapping(self, node: Any, keys: Keys) -> dict[str, Any]:
        if not isinstance(node, dict | None):
            raise WrongSettings([f"{self.problems.place(keys)}: expected settings as `key: value` lines"])
        return {str(key): value for key, value in (node or {}).items()}

    def refuse_unknown(self, document: dict[str, Any], known: Collection[str]) -> None:
        for key in document:
            if key not in known:
                self.problems.report_unknown((key,), known)

    def own_section(self, document: dict[str, Any], *, shares: bool) -> dict[str, Any]:
        own = self.mapping(document.get(*self.root), self.root)
        if not shares:
            return own
        inner = (*self.root, SHARED_SECTION)
        shared = self.mapping(document.get(SHARED_SECTION), (SHARED_SECTION,))
        nearer = self.mapping(own.get(SHARED_SECTION), inner)
        for key in shared.keys() - nearer.keys():
            self.problems.origins[*inner, key] = self.problems.place((SHARED_SECTION, key))
        return own | {SHARED_SECTION: shared | nearer}

    def interpolated(self, node: Any, keys: Keys) -> Any:
        if isinstance(node, dict):
            return {str(key): self.interpolated(value, (*keys, str(key))) for key, value in node.items()}
        if isinstance(node, list):
            return [self.interpolated(value, (*keys, str(index))) for index, value in enumerate(node)]
        if isinstance(node, str):
            return _VARIABLE.sub(lambda found: self.variable(found, keys), node)
        return node

    def variable(self, found: re.Match[str], keys: Keys) -> str:
        name, has_default, default = found[2].partition(":-")
        if found[1]:
            return found[0][1:]
        if not name.isidentifier():
            self.problems.report(keys, "write ${NAME} or ${NAME:-default}, and $${ where the text itself has ${")
        elif not has_default and name not in self.environ:
            self.problems.report(keys, f"{name} is not set; set it in the environment, or write ${{{name}:-default}}")
        return self.environ.get(name) or default

    def override(self, raw: dict[str, Any]) -> None:
        """Put in what the environment says; where one name begins another, the longer one holds."""
        for name in sorted(name for name in self.environ if name.startswith(self.env_prefix)):
            *parents, last = name.removeprefix(self.env_prefix).lower().split("__")
            node = raw
            for parent in parents:
                if not isinstance(node.get(parent), dict):
                    node[parent] = {}
                node = node[parent]
            node[last] = self.environ[name]
            self.problems.origins[*self.root, *parents, last] = name
