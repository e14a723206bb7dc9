"""Addressees: the hosts, mail addresses and paths that texts name, and which of them are new.

It errs towards finding one: a miss may send a mail to a stranger. What lies below a named path or host is not new.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator

_NAME = r"(?:[\w-]+\.)+[^\W\d_]{2,24}"
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
"""Each place is looked at once: a match is not taken apart again."""
_FILES = re.compile(r"txt|json|ya?ml|toml|ini|csv|xml|html?|css|js|pdf|docx|xlsx|png|jpe?g|svg|log", re.IGNORECASE)
"""File endings that are no top-level domains here: `data.csv` alone is no address."""
_SUFFIX = re.compile(r"\.\w{1,8}$")
_OURS = "artifacts/"


def added(texts: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    before = {name for text in known for name in named_in(text)}
    hosts = before | {name.rpartition("@")[2] for name in before}
    found = (name for text in texts for name in named_in(text))
    return tuple(dict.fromkeys(name for name in found if name not in hosts and not _below(name, before)))


def named_in(text: str) -> Iterator[str]:
    """Hosts and mail addresses in small letters and without `www.`, paths without detours."""
    for match in _ADDRESSES.finditer(unicodedata.normalize("NFKC", text)):
        kind = str(match.lastgroup)
        name = match[kind].rstrip(".")
        if kind in ("path", "file"):
            path = posixpath.normpath(name)
            if kind == "path" or (_SUFFIX.search(path) and not path.startswith(_OURS)):
                yield path
        elif kind != "name" or _is_host(name):
            yield name.casefold().removeprefix("www.")


def _is_host(name: str) -> bool:
    suffix = name.rpartition(".")[2]
    return not _FILES.fullmatch(suffix) and not (suffix[:1].isupper() and suffix[1:].islower())


def _below(path: str, named: set[str]) -> bool:
    return "/" in path and any(path.startswith(f"{above}/") for above in named)
