-- What models cost, by the day (UTC, such as 2026-11-23) and by who asked for the run. Written with the entry that paid.

CREATE TABLE spending (
    day    TEXT NOT NULL,
    caller TEXT NOT NULL,
    usd    REAL NOT NULL,
    PRIMARY KEY (day, caller)
) STRICT, WITHOUT ROWID;
