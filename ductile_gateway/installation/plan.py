"""What is to be written where, so that a Ductile has what agents need. It is computed here, and not written.

a folder of our own   agentic/, beside the main file: settings, plugins, secrets (generation m), and a record of it all
two lines of others   that folder's settings in `include`, and (m) the secrets of relay and webhook in tokens.yaml
no variables          Ductile hands its environment to every plugin (m): each secret is in a file for its reader
the agent's side      its settings, where there are none yet, and the same secrets, each in a file of its own
"""

import hashlib
import secrets as randomness
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ductile_gateway.installation.found import NAME, OURS, Found, Generation, at, read_yaml
from ductile_gateway.installation.pages import AgentsPage, DuctilesPage, outcomes_page
from ductile_gateway.installation.wishes import Wishes
from ductile_gateway.installation.yaml_lists import Item
from groundwork.service.errors import Misconfigured
from groundwork.service.shipped import shipped

PLUGINS = ("agentic-wake", "agentic-run")
INCLUDED = f"{OURS}/agentic.yaml"
SECRET_BYTES = 32
RELAY, WEBHOOK = "agentic-relay-v1", "agentic-webhook-v1"
_SECRETS = ("gateway", "relay", "wake", "run", "webhook")
"""Those that Ductile needs."""
_FOR_PLUGINS = ("wake", "run")


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file of ours. `secret`, `program`, `whole`: as of a Change. `at_agent`: not Ductile's."""

    path: Path
    content: bytes = field(repr=False)
    secret: bool = False
    program: bool = False
    at_agent: bool = False
    whole: bool = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Added:
    """An item that is put into a list of a file of Ductile's."""

    path: Path
    key: str
    item: Item

    @property
    def secret(self) -> str:
        """What of it is not to be shown; empty where all may be."""
        return "" if isinstance(self.item, str) else self.item.get("key", "")


@dataclass(frozen=True, slots=True)
class Plan:
    generation: Generation
    files: tuple[NewFile, ...]
    added: tuple[Added, ...]
    settings_shown: str | None
    """The settings of the agent's side, where others are in their place."""
    secrets: Mapping[str, Path]
    """Where the agent's side has each secret."""
    agents_folder: Path
    hidden: tuple[str, ...] = field(repr=False)
    """What is not to be shown of it."""


def plan(found: Found, wishes: Wishes, *, ours: Callable[[Path], bool] | None = None) -> Plan:
    """What has to be written. `ours`: whether a file is as we wrote it; None where we have written none.

    Raises Misconfigured.
    """
    wishes.check()
    generation = _generation(found, wishes)
    _check(found, wishes, again=ours is not None)
    place = wishes.settings.absolute()
    taken = place.exists() and not (ours and ours(place))
    beside_another = taken and _is_another(found, place)
    kept = _Secrets(found, wishes, generation)
    page = DuctilesPage(found, wishes, generation, {name: kept.token_file(name) for name in _FOR_PLUGINS})
    settings = AgentsPage(found, wishes, generation, kept.places, beside_another=beside_another).text()
    outcomes = outcomes_page(wishes.outcomes) if wishes.outcomes else None
    files = [
        NewFile(found.folder / INCLUDED, page.installed().encode(), whole=True),
        NewFile(found.folder / OURS / "yours.yaml", page.yours().encode(), whole=True),
        *kept.of_ductile(page),
        *([NewFile(found.folder / OURS / "outcomes.yaml", outcomes.encode(), whole=True)] if outcomes else []),
        *_plugin_files(found.folder / OURS / "plugins"),
        *kept.files(ours=ours or (lambda _: False)),
        *(() if taken else [NewFile(place, settings.encode(), at_agent=True, whole=True)]),
    ]
    added = tuple(_added(found, wishes, generation, kept.values))
    hidden = tuple(kept.values.values())
    return Plan(generation, tuple(files), added, settings if taken else None, kept.places, place.parent, hidden)


class _Secrets:
    """Made once: what lies at the agent's side already is taken from there."""

    def __init__(self, found: Found, wishes: Wishes, generation: Generation) -> None:
        folder = wishes.settings.absolute().parent / ".agentic" / "secrets"
        unwanted = () if wishes.webhook else ("webhook",)
        self._generation = generation
        self._folder = found.folder / OURS
        self.places = {name: folder / f"{found.name}.{name}" for name in _SECRETS if name not in unwanted}
        self.places["people"] = folder / "people"
        self.values = {name: self._value(place) for name, place in self.places.items()}

    def files(self, *, ours: Callable[[Path], bool]) -> Iterator[NewFile]:
        """That of people is of all Ductiles: it is not ours where it was there."""
        for name, place in self.places.items():
            if name == "people" and place.exists() and not ours(place):
                continue
            yield NewFile(place, f"{self.values[name]}\n".encode(), secret=True, at_agent=True)

    def of_ductile(self, page: DuctilesPage) -> Iterator[NewFile]:
        if self._generation == "m":
            secrets = page.secrets(self.values["gateway"]).encode()
            yield NewFile(self._folder / "secrets.yaml", secrets, secret=True, whole=True)
            for name in _FOR_PLUGINS:
                yield NewFile(self.token_file(name), f"{self.values[name]}\n".encode(), secret=True)

    def token_file(self, name: str) -> Path:
        """From which a plugin of Ductile's has its token."""
        return self._folder / f"{name}.token"

    def _value(self, place: Path) -> str:
        try:
            return place.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return randomness.token_hex(SECRET_BYTES)


def _is_another(found: Found, settings: Path) -> bool:
    """Whether settings that are there have a Ductile, and not this one as the first. Raises Misconfigured where another
    has its name."""
    gateway = at(read_yaml(settings), "gateway")
    first, further = at(gateway, "ductile", "url"), at(gateway, "ductiles")
    urls = {name: at(each, "url") for name, each in further.items()} if isinstance(further, dict) else {}
    if first == found.url or not (first or urls):
        return False
    peers = at(gateway, "ingress", "peers") if found.url not in urls.values() else None
    if urls.get(found.name, found.url) != found.url or (isinstance(peers, dict) and found.name in peers):
        raise Misconfigured(
            f"`service.name` is {found.name!a}, and so is that of another Ductile in {settings}: change it first; the "
            "tools of this one will begin with it"
        )
    return True


def _generation(found: Found, wishes: Wishes) -> Generation:
    by_files = found.generation()
    if by_files and wishes.generation and by_files != wishes.generation:
        raise Misconfigured(f"the configuration is one of generation {by_files}, not {wishes.generation}")
    if generation := wishes.generation or by_files:
        return generation
    raise Misconfigured(
        "nothing in it tells which Ductile it is for: say --generation m (of May 2026, secrets in files) "
        "or --generation n (`ductile vault` is one of its commands)"
    )


def _check(found: Found, wishes: Wishes, *, again: bool) -> None:
    """Raises Misconfigured where nothing can be added."""
    ours = found.folder / OURS
    told = {
        f"{ours} is there already: not made by this command, or kept by `remove` because it was changed. Move it away, "
        f"and take {INCLUDED} out of `include`, where it is named": ours.exists() and not again,
        "its API is off, by which tools are called: set `api: {enabled: true}` in it first": not found.has_api,
        f"`service.name` is {found.name!a}: a Ductile with a relay is named in small letters, digits and hyphens; "
        "change it first": not NAME.fullmatch(found.name),
        f"there is no folder {wishes.outcomes}: make it, for Ductile to write in": wishes.outcomes
        and not wishes.outcomes.is_dir(),
        "outcomes are kept by Ductile's own plugin file_handler, which is in none of plugin_roots: copy it there "
        "first, or leave out --outcomes": wishes.outcomes and "file_handler" not in found.manifests(),
    }
    for flaw, is_so in told.items():
        if is_so:
            raise Misconfigured(flaw)
    if taken := next(found.taken(), None):
        raise Misconfigured(f"it has {taken} of its own already, which would be replaced: rename or remove it first")


def _added(found: Found, wishes: Wishes, generation: Generation, secrets: Mapping[str, str]) -> Iterator[Added]:
    tokens = found.tokens_file
    if generation == "m":
        if tokens is None and (beside := found.folder / "tokens.yaml").exists():
            raise Misconfigured(f"{beside} is there and not in `include`: name it there, or move it away")
        if tokens and tokens.stat().st_mode & 0o007:
            raise Misconfigured(
                f"everybody on this machine can read {tokens}, and a secret comes into it: `chmod o-rwx {tokens}` first"
            )
        if tokens is None:
            yield Added(found.main, "include", "tokens.yaml")
        table = tokens or found.folder / "tokens.yaml"
        if wishes.webhook:
            yield Added(table, "tokens", {"name": WEBHOOK, "key": secrets["webhook"]})
        yield Added(table, "tokens", {"name": RELAY, "key": secrets["relay"]})
    yield Added(found.main, "include", INCLUDED)


def _plugin_files(to: Path) -> Iterator[NewFile]:
    for plugin in PLUGINS:
        source = shipped("deploy", "ductile", "plugins", plugin)
        for file in sorted(source.iterdir()):
            if file.is_file():
                yield NewFile(to / plugin / file.name, file.read_bytes(), program=file.name == "run.py")
