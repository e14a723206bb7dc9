-- When everything was stopped, by whom, and when it went on. `over`: every run has been told that it does.

CREATE TABLE halts (
    number   INTEGER NOT NULL PRIMARY KEY,
    since    INTEGER NOT NULL,
    by       TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    until    INTEGER,
    until_by TEXT    NOT NULL,
    over     INTEGER NOT NULL
) STRICT;
