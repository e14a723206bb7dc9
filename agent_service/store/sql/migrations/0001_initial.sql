-- Instants are INTEGER microseconds since 1970 UTC: 8 bytes instead of 27 in the row and again in each index, and they
-- compare as numbers. To read them: datetime(at / 1000000, 'unixepoch'). Hashes are BLOBs; to read them: hex(hash).

-- One row per run, rewritten with every entry of its journal.
CREATE TABLE runs (
    run_id      TEXT    NOT NULL PRIMARY KEY, -- a ULID after `run_`: the order of ids is the order of acceptance
    wake_id     TEXT    NOT NULL UNIQUE,
    wake_digest TEXT    NOT NULL,             -- of the request: the same wake id for another one is a conflict
    accepted_at INTEGER NOT NULL,
    status      TEXT    NOT NULL
        CHECK (status IN ('queued', 'running', 'paused', 'done', 'escalated', 'failed', 'cancelled')),
    version     INTEGER NOT NULL,             -- seq of the newest entry: what a commit compares before it swaps
    head        BLOB    NOT NULL,             -- hash of the newest entry
    summary     TEXT    NOT NULL,
    touched_at  INTEGER NOT NULL,             -- latest `at` of all entries; a clock set back does not lower it
    due_at      INTEGER,                      -- the run's only timer
    state       TEXT    NOT NULL              -- JSON without the brief
) STRICT;

CREATE INDEX runs_by_status ON runs (status, run_id);
CREATE INDEX runs_by_due_at ON runs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX runs_ended ON runs (touched_at) WHERE status IN ('done', 'escalated', 'failed', 'cancelled');

-- How many runs there are of each status. Kept, because counting them would take longer with every run there ever was.
CREATE TABLE tallies (
    status TEXT    NOT NULL PRIMARY KEY,
    runs   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

INSERT INTO tallies (status)
VALUES ('queued'), ('running'), ('paused'), ('done'), ('escalated'), ('failed'), ('cancelled');

CREATE TRIGGER tally_new_run AFTER INSERT ON runs BEGIN
    UPDATE tallies SET runs = runs + 1 WHERE status = new.status;
END;

CREATE TRIGGER tally_changed_status AFTER UPDATE OF status ON runs WHEN new.status <> old.status BEGIN
    UPDATE tallies SET runs = runs - 1 WHERE status = old.status;
    UPDATE tallies SET runs = runs + 1 WHERE status = new.status;
END;

-- What a run was asked and given. Apart from `runs`, because it is large, with all tools in it, and seldom changes.
CREATE TABLE briefs (
    run_id TEXT NOT NULL PRIMARY KEY REFERENCES runs,
    goal   TEXT NOT NULL,
    brief  TEXT NOT NULL -- JSON
) STRICT;

-- The truth: only ever appended to. With rowids, because most rows are too large for the leaves of an index.
CREATE TABLE journal (
    position       INTEGER PRIMARY KEY, -- order of storing, over all runs
    run_id         TEXT    NOT NULL REFERENCES runs,
    seq            INTEGER NOT NULL,
    at             INTEGER NOT NULL,
    kind           TEXT    NOT NULL,
    event          TEXT    NOT NULL,    -- JSON
    effects_digest BLOB    NOT NULL,
    previous       BLOB    NOT NULL,    -- hash of the entry before
    hash           BLOB    NOT NULL,
    UNIQUE (run_id, seq)
) STRICT;

-- Effects of entries, until they are known to be done.
CREATE TABLE outbox (
    position INTEGER PRIMARY KEY REFERENCES journal,
    effects  TEXT NOT NULL -- JSON
) STRICT;
