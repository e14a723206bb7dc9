"""Pages of a SQLite file that hold nothing: some stay for what comes next, the others are cut off bit by bit."""

import sqlite3

SPARE_PAGES, CUT_OFF_AT_ONCE = 1024, 200
"""Pages that stay for what comes next, and how many are cut off by one write: a few milliseconds."""
INCREMENTAL = 2


def cut_off(connection: sqlite3.Connection, spare: int) -> bool:
    """Cut off some of those that are too many, in a transaction of the caller's; whether there are more."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    too_many = free - spare
    if too_many <= 0:
        return False
    for _ in range(min(too_many, CUT_OFF_AT_ONCE)):  # a step of the statement is a page, and the module takes only one
        connection.execute("PRAGMA incremental_vacuum(1)")
    return bool(too_many > CUT_OFF_AT_ONCE)
