"""Egress: reads of a tainted run that may carry data out in their address.

Such an address stood nowhere in full before the model wrote it, and its host was never named, or its path or query
holds a value of the context, of a trusted tool's output, or a code.

An untrusted request's goal and context name no hosts; those of a child, written by a model, name no addresses either.
A child gets the addresses that its parent could read (`named`).
"""

import json
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from urllib.parse import unquote_plus

from pydantic import JsonValue

from agent_service.core.phases import Action
from agent_service.core.state import MemoryNote, MessageNote, Note, RulingNote, RunState, StepNote
from agent_service.sentences import Text, say
from schemas.catalog import ToolCommand

LEAST = 6
"""Letters and digits of the shortest value that is searched for; of an unknown code, eight."""
MOST_NAMED = 200
_FIELD = re.compile(r"(ur[il]|href|link|host|hostname|domain|endpoint|site|webhook|server|address)s?$", re.IGNORECASE)
_FORMATS = frozenset(
    {"uri", "url", "iri", "uri-reference", "iri-reference", "hostname", "idn-hostname", "ipv4", "ipv6"}
)
_URL = re.compile(r"[a-z][a-z0-9+.-]{0,20}://|(?:https?|wss?|ftp):[/\\]", re.IGNORECASE)
_LENIENT = re.compile(
    r"""
    \A(?: (?:https?|wss?|ftp):[/\\\s\x00-\x1f]* | [/\\][\s\x00-\x1f]*[/\\][/\\\s\x00-\x1f]*
    | (?= (?:\[[0-9a-f:.]+\] | (?:(?:0x[0-9a-f]+|\d+)\.){1,3}(?:0x[0-9a-f]+|\d+) | 0x[0-9a-f]+ | \d{8,}) [:/?\#] ) )
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Beginnings that Node and curl take for `http://`: other numbers of slashes, backslashes, none before a number."""
_DOTS = str.maketrans("\u3002\uff61", "..")
"""Full stops that resolvers take for a dot (IDNA)."""
_LINK = re.compile(r"[a-z][a-z0-9+.-]{0,20}://[^\s\"'<>()\[\]`]+", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:[a-z][a-z0-9+.-]{0,20}://)?([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_ODD = re.compile(r"[\\\s\x00-\x1f]")
"""Characters that some URL parsers take for the end of the host."""
_GOES_ON = re.compile(r"[/.,:;?!]?[\w%&=#+@~$-]")
_WORD = re.compile(r"[\w.@-]{6,}")
_PART = re.compile(r"[^/?&=;#+\s]+")
_CODE = re.compile(r"(?=[^\W_]*\d)(?=[^\W_]*[^\W\d_])[^\W_]{8,}")
_DIGIT, _DATE = re.compile(r"\d"), re.compile(r"\d{4}-\d\d-\d\d")


def read_reason(state: RunState, command: ToolCommand, action: Action) -> Text:
    if command.effect == "local":
        return ""
    named = frozenset[str]()
    for address in addresses_in(action.arguments, command.input_schema):
        url = _LENIENT.sub("http://", address.translate(_DOTS))
        authority = _split(url)[0] if _URL.match(url) else ""
        hosts = _hosts_in(url) or frozenset(filter(None, (authority,)))
        if not hosts or _is_known(state, address):
            continue
        named = named or _named_hosts(state)
        odd = _ODD.search(url) or "@" in _split(url)[0]
        if odd or not hosts <= named:
            return say("address_unnamed", hosts=", ".join(sorted(hosts - named) or sorted(hosts)))
        if _carries_data(state, action, url, hosts):
            return say("address_tells", hosts=", ".join(sorted(hosts)))
    return ""


def child_addresses(state: RunState, texts: Sequence[str]) -> tuple[str, ...]:
    """Addresses that a child with these texts as its request may read: named hosts, and known links."""
    found = (link.rstrip(".,;:!?") for text in texts for link in _LINK.findall(text))
    links = dict.fromkeys(link for link in found if _is_known(state, link))
    return (*sorted(_named_hosts(state))[:MOST_NAMED], *tuple(links)[:MOST_NAMED])


def addresses_in(arguments: JsonValue, schema: JsonValue, field: str = "") -> Iterator[str]:
    known = schema if isinstance(schema, dict) else {}
    match arguments:
        case str():
            if _FIELD.search(field) or known.get("format") in _FORMATS or _URL.match(arguments.lstrip()):
                yield arguments.strip()
        case list():
            for one in arguments:
                yield from addresses_in(one, known.get("items"), field)
        case dict():
            properties = known.get("properties")
            for name, value in arguments.items():
                yield from addresses_in(value, properties.get(name) if isinstance(properties, dict) else None, name)


def _hosts_in(text: str) -> frozenset[str]:
    names = (name.rpartition("@")[2] for name in destinations_in(text))
    return frozenset(name for name in names if "/" not in name)


def _split(address: str) -> tuple[str, str]:
    found = _AUTHORITY.match(address)
    return (found[1], found[2]) if found else ("", address)


def request_texts(state: RunState) -> tuple[str, str]:
    return state.brief.goal, json.dumps(state.brief.context, ensure_ascii=False)


def trusted_texts(state: RunState) -> tuple[str, ...]:
    return (*(() if state.brief.untrusted else request_texts(state)), *state.messages)


def _named_hosts(state: RunState) -> frozenset[str]:
    handed = (name for name in state.brief.named if not _URL.match(name))
    return frozenset(handed).union(*map(_hosts_in, trusted_texts(state)))


def _is_known(state: RunState, address: str) -> bool:
    asked = request_texts(state) if state.brief.untrusted and state.brief.parent is None else ()
    texts = (*trusted_texts(state), *asked, *(_text(one.output) for one in state.evidence))
    if address in state.brief.named or any(_occurs_in(address, text) for text in texts):
        return True
    for own, foreign in map(_texts_of, state.notes):
        if _occurs_in(address, own):
            return False
        if _occurs_in(address, foreign):
            return True
    return False


def _occurs_in(address: str, text: str) -> bool:
    bare = address.rstrip("/")
    if "?" not in bare and "#" not in bare and f"{bare}/" in text:
        return True
    ends = (found.end() for found in re.finditer(rf"(?<!\w){re.escape(bare)}", text))
    return any(not _GOES_ON.match(text, end) for end in ends)


def _carries_data(state: RunState, action: Action, address: str, hosts: frozenset[str]) -> bool:
    """True if path or query hold a value of the run, or an unknown code, that the host does not know."""
    brief, tail = state.brief, _DATE.sub(" ", unquote_plus(unquote_plus(_split(address)[1])))
    request = () if brief.untrusted else (brief.goal, *_LINK.findall(request_texts(state)[1]))
    known, others = [*request, *state.messages], list[str]()
    house = [*leaf_texts(brief.context), *((brief.goal,) if brief.untrusted else ())]
    for note in state.notes:
        own, foreign = _texts_of(note)
        if asked := _same_arguments(note, action, hosts):
            known += (asked, foreign)
        else:
            skill = brief.skill(note.tool) if isinstance(note, StepNote) else None
            trusted = isinstance(note, MemoryNote) or (skill is not None and skill.output == "trusted")
            (house if trusted else others).extend((own, foreign))
    bare, in_house = _alphanumeric("\n".join(known)), _alphanumeric("\n".join(house))
    words = map(_alphanumeric, filter(_DIGIT.search, _WORD.findall(_DATE.sub(" ", "\n".join((*house, *others))))))
    bare_tail = _alphanumeric(tail)
    codes = [word for word in words if len(word) >= LEAST and word in bare_tail]
    copied = [part for part in map(_alphanumeric, _PART.findall(tail)) if len(part) >= LEAST and part in in_house]
    return any(value not in bare for value in (*copied, *codes, *map(str.casefold, _CODE.findall(tail))))


def _same_arguments(note: Note, action: Action, hosts: frozenset[str]) -> str:
    """Arguments of a note of the same command and host; else empty."""
    if not isinstance(note, StepNote) or (note.tool, note.command) != (action.tool, action.command):
        return ""
    asked = _text(note.arguments.value)
    return asked if hosts & _hosts_in(asked) else ""


def _texts_of(note: Note) -> tuple[str, str]:
    """Texts of a note that the run or a person wrote, and texts from tools or untrusted senders."""
    own, foreign = tuple[str, ...](), tuple[str, ...]()
    match note:
        case StepNote(reflection=reflection):
            thought = leaf_texts(asdict(reflection)) if reflection else ()
            own = (*thought, note.rationale, note.expected, _text(note.arguments.value))
            foreign = (*note.asked, _text(note.output.value))
        case MessageNote():  # people's words are in the run's messages
            own, foreign = (note.answers,), (note.said,) if note.untrusted else ()
        case RulingNote(arguments=arguments):
            own = (note.framing, _text(arguments.value) if arguments else "", note.reason)
        case MemoryNote():
            own, foreign = note.facts, tuple(old.summary for old in note.older)
    return "\n".join(own), "\n".join(foreign)


def leaf_texts(value: JsonValue | Mapping[str, JsonValue], *, names: bool = False) -> Iterator[str]:
    match value:
        case dict():
            for name, one in value.items():
                yield from (name,) if names else ()
                yield from leaf_texts(one, names=names)
        case list() | tuple():
            for one in value:
                yield from leaf_texts(one, names=names)
        case str() | int() | float():
            yield str(value)


def _text(value: Mapping[str, JsonValue]) -> str:
    return "\n".join(leaf_texts(value, names=True))


def _alphanumeric(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


_NAME = r"(?:[\w-]+\.)+(?:xn--[\w-]{1,59}|[^\W\d_]{2,24})"
_TO_THE_END = r"[^\s\"'<>()`]*+"
_ADDRESSES = re.compile(
    rf"""
    [a-z][a-z0-9+.-]{{0,20}}://(?:[^\s/\\@]{{0,255}}@)?(?P<host>\[[0-9a-f:.]+\]|[^\s/\\:?\#"'<>()\[\]`]+){_TO_THE_END}
    | (?<![\w.+-])(?P<mail>[\w.+-]++@{_NAME})
    | (?P<drive>\b[a-z]:\\{_TO_THE_END})
    | (?<![\w./@\\-])(?P<site>{_NAME})/{_TO_THE_END}
    | (?<![\w/:.~\\-])(?P<path>(?:~|\.{{1,2}})?/[\w.~+-]++(?:/[\w.~+-]++)*+)
    | (?<![\w/:.~\\-])(?P<file>[\w-]++(?:/[\w.~+-]++)++)
    | (?<![\w./@\\-])(?P<name>{_NAME}|\d{{1,3}}(?:\.\d{{1,3}}){{3}}|localhost)(?![\w@/-]|\.\w)
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Possessive: a match is not taken apart again, so the search is linear."""
_FILES = re.compile(r"txt|json|ya?ml|toml|ini|csv|xml|html?|css|js|pdf|docx|xlsx|png|jpe?g|svg|log", re.IGNORECASE)
"""File suffixes that do not count as top-level domains: `data.csv` alone is no address."""
_SUFFIX = re.compile(r"\.\w{1,8}$")
_ARTIFACTS = "artifacts/"


def new_destinations(texts: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    before = {name for text in known for name in destinations_in(text)}
    hosts = before | {name.rpartition("@")[2] for name in before}
    found = (name for text in texts for name in destinations_in(text))
    return tuple(dict.fromkeys(name for name in found if name not in hosts and not _below(name, before)))


def destinations_in(text: str) -> Iterator[str]:
    """Hosts and mail addresses in lower case and without `www.`, and normalised paths."""
    for match in _ADDRESSES.finditer(unicodedata.normalize("NFKC", text)):
        kind = str(match.lastgroup)
        name = match[kind].rstrip(".")
        if kind in ("path", "file"):
            path = posixpath.normpath(name)
            if kind == "path" or (_SUFFIX.search(path) and not path.startswith(_ARTIFACTS)):
                yield path
        elif kind != "name" or _is_host(name):
            yield name.casefold().removeprefix("www.")


def _is_host(name: str) -> bool:
    suffix = name.rpartition(".")[2]
    return not _FILES.fullmatch(suffix) and not (suffix[:1].isupper() and suffix[1:].islower())


def _below(path: str, named: set[str]) -> bool:
    return "/" in path and any(path.startswith(f"{above}/") for above in named)
