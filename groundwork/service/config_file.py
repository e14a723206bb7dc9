"""Settings of one service: a YAML file, overridden by the environment, checked by a pydantic model.

- A service reads its own top-level section; keys of the shared section `nats:` fill those missing in its own `nats`.
- `${VAR}` and `${VAR:-default}` stand for environment variables, after parsing: a value cannot add keys. `$${` is `${`.
- `PREFIX_HTTP__PORT=1` overrides `http: {port: …}`; a list or mapping is written there as JSON.
- A secret may come from a file: `token_file: /run/secrets/x` for a SecretStr field `token`, or `PREFIX_…_FILE`. It is
  read again when the file changes (secret_file.py).
- A secret that is empty or soon guessed is refused, wherever it comes from (secret.py).
- All problems are told at once, each with its place; no value is ever shown, because any could hold a secret.

Ours, and not pydantic-settings, which would replace `override` alone: it has no `${VAR}`, no places, and no answer to
repeated keys, unknown variables, or a secret's file beside the secret.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from groundwork.service.config_fields import Fields, Keys, Problems, WrongSettings
from groundwork.service.strict_yaml import NotYaml, parse

M = TypeVar("M", bound=BaseModel)

SHARED_SECTION = "nats"
SECRETS = frozenset({"token", "secret", "previous_secret", "password", "api_key"})
"""What secrets are called in settings."""
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
    """The secrets of all programs that the file is for, by their places, such as `gateway.ductile.token`: also one that
    is in a file of its own. Not what plugins are configured with, who may well have the token that opens us."""
    whole = _Reading(Problems(str(path)), (), "", environ).interpolated(_parsed(path), ())
    return {".".join(keys): secret for keys, secret in _secrets(whole, ()) if OF_PLUGINS not in pairwise(keys)}


def as_given(document: Any, environ: Mapping[str, str]) -> Any:
    """What a file says, with what stands for variables; one that is not set is empty."""
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
