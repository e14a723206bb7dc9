-- What callers asked for, as the journal keeps it, by the day; and how many of their runs have not ended.

ALTER TABLE spending ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

CREATE TABLE callers (
    caller    TEXT    NOT NULL PRIMARY KEY,
    open_runs INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
