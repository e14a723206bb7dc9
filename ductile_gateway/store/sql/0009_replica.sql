-- Of a copy: which log it is of, by when that was made, and the newest fact that is in it, stored `at`. A gateway's own store has none.

CREATE TABLE replica (
    created TEXT    NOT NULL,
    reached INTEGER NOT NULL,
    at      TEXT    NOT NULL
) STRICT;
