"""An index of pages in SQLite (FTS5), in a cache that concurrent calls share.

Before each search, pages that have changed are read again in one transaction. The cache may be deleted at any time. A
damaged one is made anew; if none can be kept, the index is in memory, for one call.
"""

import hashlib
import re
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from pages import Section, Stamp, pages_in, read, sections

PAGES = """create table pages(
    page text primary key, changed integer, size integer, inode integer, first integer, last integer
)"""
SECTIONS = """create virtual table sections using fts5(
    page, heading, text, from_line unindexed, to_line unindexed, tokenize = 'porter unicode61 remove_diacritics 2'
)"""
BEST = """select page, heading, from_line, to_line, text from sections where sections match ?
    order by bm25(sections, 2.0, 4.0, 1.0), rowid limit ?"""
VERSION = 1
"""Version of the schema and of the division into sections; part of the file's name."""
MOST_WORDS, LONGEST_WORD = 40, 64
PREFIX_CHARS = 4
COMMON = re.compile(
    "an?|and|are|as|at|be|by|can|do|for|from|has|have|how|if|in|into|is|its?|may|must|no|not|of|on|or|our|shall|so|that|"
    "the|their|there|these|they|this|to|was|we|what|when|where|which|who|will|with|your?"
)
"""Words that no search needs."""


@dataclass(frozen=True)
class Found:
    """A matching section and its page."""

    page: str
    section: Section


@dataclass(frozen=True)
class Answer:
    """The best sections, best first, and the number of all matches."""

    best: tuple[Found, ...]
    in_all: int


def search(folder: Path, cache: Path | None, query: str, *, thorough: bool, limit: int, wait_s: float) -> Answer:
    """Searches by an index in the folder `cache`, or in memory.

    wait_s: limit of waiting for other calls that update the index. Raises TimeoutError when they take longer, and
    sqlite3.Error if this SQLite has no FTS5."""
    wanted = fts_query(query, thorough=thorough)
    kept = _search_cached(folder, cache, wanted, limit, wait_s) if cache else None
    return kept or _search_index(folder, ":memory:", wanted, limit, wait_s)


def fts_query(query: str, *, thorough: bool) -> str:
    """Returns the FTS5 query for any of the words, each as a string, so that none is an operator."""
    words = list(dict.fromkeys(word.lower() for word in re.findall(r"[^\W_]+", query) if len(word) <= LONGEST_WORD))
    telling = [word for word in words if not COMMON.fullmatch(word)] or words
    ends = {word: "*" if thorough and len(word) >= PREFIX_CHARS else "" for word in telling[:MOST_WORDS]}
    return " OR ".join(f'"{word}"{end}' for word, end in ends.items())


def index_file(folder: Path, cache: Path) -> Path:
    return cache / f"v{VERSION}-{hashlib.sha256(str(folder).encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.db"


def _search_cached(folder: Path, cache: Path, wanted: str, limit: int, wait_s: float) -> Answer | None:
    """Returns None if the cache cannot keep an index."""
    file = index_file(folder, cache)
    for _ in range(2):
        try:
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _search_index(folder, str(file), wanted, limit, wait_s)
        except (OSError, ValueError):  # ValueError: NUL in the path
            return None
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise TimeoutError("others have been bringing the index up to date all the while") from error
            return None
        except sqlite3.DatabaseError:  # damaged, or no database at all
            _delete(file)
    return None


def _search_index(folder: Path, name: str, wanted: str, limit: int, wait_s: float) -> Answer:
    with closing(sqlite3.connect(name, timeout=wait_s, isolation_level=None)) as index:
        _create_tables(index)
        _update(index, folder)
        if not wanted:
            return Answer((), 0)
        (in_all,) = index.execute("select count(*) from sections where sections match ?", (wanted,)).fetchone()
        best = index.execute(BEST, (wanted, limit)).fetchall()
        return Answer(tuple(Found(page, Section(*columns)) for page, *columns in best), in_all)


def _create_tables(index: sqlite3.Connection) -> None:
    """Takes the write lock before it reads: else SQLite refuses one of two writers instead of letting it wait."""
    if not index.execute("select 1 from sqlite_master").fetchone():
        index.execute("begin immediate")
        for table in () if index.execute("select 1 from sqlite_master").fetchone() else (PAGES, SECTIONS):
            index.execute(table)
        index.execute("commit")


def _delete(file: Path) -> None:
    for name in (file, Path(f"{file}-journal")):
        with suppress(OSError):
            name.unlink()


def _update(index: sqlite3.Connection, folder: Path) -> None:
    there = pages_in(folder)
    if not _changed(index, there):
        return
    index.execute("begin immediate")  # another call may have done it while this one waited
    changed = _changed(index, there)
    for page in changed:
        _remove(index, page)
        if page in there and (found := read(folder, page)):
            _add(index, page, *found)
    index.execute("commit")


def _changed(index: sqlite3.Connection, there: dict[str, Stamp]) -> list[str]:
    known = {page: Stamp(*stamp) for page, *stamp in index.execute("select page, changed, size, inode from pages")}
    gone = known.keys() - there.keys()
    return [*gone, *(page for page, stamp in there.items() if not stamp.changed or known.get(page) != stamp)]


def _remove(index: sqlite3.Connection, page: str) -> None:
    for rows in index.execute("select first, last from pages where page = ?", (page,)).fetchall():
        index.execute("delete from sections where rowid between ? and ?", rows)
    index.execute("delete from pages where page = ?", (page,))


def _add(index: sqlite3.Connection, page: str, text: str, stamp: Stamp) -> None:
    (before,) = index.execute("select coalesce(max(rowid), 0) from sections").fetchone()
    rows = [(page, one.heading, one.text, one.from_line, one.to_line) for one in sections(text)]
    index.executemany("insert into sections(page, heading, text, from_line, to_line) values (?, ?, ?, ?, ?)", rows)
    place = (stamp.changed, stamp.size, stamp.inode, before + 1, before + len(rows))
    index.execute("insert into pages values (?, ?, ?, ?, ?, ?)", (page, *place))
