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
    dispatched  INTEGER NOT NULL DEFAULT 0,   -- all is done that entries up to this one ask for
    line        TEXT    NOT NULL,             -- JSON: what lists and limits need of it besides
    bytes       INTEGER NOT NULL,             -- about how much room it takes, here or in the log
    state       TEXT    NOT NULL,             -- JSON without the brief and without `items`; none in an index
    goal        TEXT    NOT NULL,
    caller      TEXT    NOT NULL,
    parent      TEXT                          -- the run that started it
) STRICT;

CREATE INDEX runs_by_status ON runs (status, run_id);
CREATE INDEX runs_by_accepted_at ON runs (accepted_at);
CREATE INDEX runs_by_due_at ON runs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX runs_ended ON runs (touched_at) WHERE status IN ('done', 'escalated', 'failed', 'cancelled');
CREATE INDEX runs_undispatched ON runs (run_id) WHERE dispatched < version;
CREATE INDEX runs_for_people ON runs (touched_at) WHERE status IN ('paused', 'escalated');

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

CREATE TRIGGER tally_gone_run AFTER DELETE ON runs BEGIN
    UPDATE tallies SET runs = runs - 1 WHERE status = old.status;
END;

-- What many runs have in common, such as the tools on offer, is stored once: a row of the journal or a brief has the
-- rest, valid JSON by itself, and where in it the text belongs.
CREATE TABLE common_texts (
    id     INTEGER PRIMARY KEY,
    digest BLOB    NOT NULL UNIQUE, -- SHA-256 of the text
    text   TEXT    NOT NULL
) STRICT;

-- What a run was asked and given. Apart from `runs`, because it is large, with all tools in it, and seldom changes.
CREATE TABLE briefs (
    run_id     TEXT NOT NULL PRIMARY KEY REFERENCES runs,
    brief      TEXT NOT NULL,                   -- JSON
    common     INTEGER REFERENCES common_texts, -- NULL: the row has all of its text
    rest_after INTEGER                          -- characters of the row behind the common text
) STRICT;

-- The truth: only ever appended to. With rowids, because most rows are too large for the leaves of an index.
CREATE TABLE journal (
    position       INTEGER PRIMARY KEY,         -- order of storing, over all runs
    run_id         TEXT    NOT NULL REFERENCES runs,
    seq            INTEGER NOT NULL,
    at             INTEGER NOT NULL,
    kind           TEXT    NOT NULL,
    event          TEXT    NOT NULL,            -- JSON
    facts          TEXT    NOT NULL,            -- JSON
    previous       BLOB    NOT NULL,            -- hash of the entry before
    hash           BLOB    NOT NULL,
    common         INTEGER REFERENCES common_texts, -- as in briefs
    rest_after     INTEGER,
    UNIQUE (run_id, seq)
) STRICT;

-- The same rows, with all of their text. One that is not there any more is missing in it, which hashes tell.
CREATE VIEW entries AS
SELECT position, run_id, seq, at, kind, facts, previous, hash,
    CASE WHEN common IS NULL THEN event ELSE
        substr(event, 1, length(event) - rest_after) || coalesce((SELECT text FROM common_texts WHERE id = common), '')
        || substr(event, length(event) - rest_after + 1)
    END AS event
FROM journal;

CREATE VIEW whole_briefs AS
SELECT run_id,
    CASE WHEN common IS NULL THEN brief ELSE
        substr(brief, 1, length(brief) - rest_after) || coalesce((SELECT text FROM common_texts WHERE id = common), '')
        || substr(brief, length(brief) - rest_after + 1)
    END AS brief
FROM briefs;

-- What grows with every step of a run, item by item in the order of rowid: an entry adds to it, and rewrites none of it.
CREATE TABLE items (
    run_id TEXT NOT NULL REFERENCES runs,
    field  TEXT NOT NULL, -- of the state
    item   TEXT NOT NULL  -- JSON
) STRICT;

CREATE INDEX items_of_run ON items (run_id, field);

-- Runs that ended in the hands of a person who has seen to it: who said so, and which entry was the newest then.
CREATE TABLE dismissals (
    run_id  TEXT    NOT NULL PRIMARY KEY REFERENCES runs,
    version INTEGER NOT NULL,
    by      TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT;

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

-- What models cost, and what callers asked for as the journal keeps it, by the day (UTC, such as 2026-11-23) and by who
-- asked for the run. Written with the entry that paid.
CREATE TABLE spending (
    day    TEXT    NOT NULL,
    caller TEXT    NOT NULL,
    usd    REAL    NOT NULL,
    bytes  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (day, caller)
) STRICT, WITHOUT ROWID;

-- Of an index of the runs that several agents share: which log it is of, by when that was made, and the newest fact that
-- is in it, stored `at`. Of a run it has the row, with the beginning of its goal. An agent's own store has none.
CREATE TABLE replica (
    created TEXT    NOT NULL,
    reached INTEGER NOT NULL,
    at      TEXT    NOT NULL
) STRICT;

-- What is left of runs that are kept no longer. The newest entry that ever was may be that of such a run: positions are
-- never given twice.
CREATE TABLE gone (
    run_id      TEXT    NOT NULL PRIMARY KEY,
    wake_id     TEXT    NOT NULL,
    wake_digest TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    last        INTEGER NOT NULL, -- position that its newest entry had in the journal of all runs
    ended_at    INTEGER NOT NULL,
    at          INTEGER NOT NULL, -- when it went
    rule        TEXT    NOT NULL,
    behind      TEXT              -- JSON: its artifacts, whose contents are to be removed with its folder; NULL once that is done
) STRICT;

CREATE INDEX gone_by_wake ON gone (wake_id);
CREATE INDEX gone_last ON gone (last);
CREATE INDEX gone_behind ON gone (run_id) WHERE behind IS NOT NULL;

-- Artifacts that were deleted before their run: when, and by which rule.
CREATE TABLE artifacts_gone (
    run_id TEXT    NOT NULL PRIMARY KEY REFERENCES runs,
    at     INTEGER NOT NULL,
    rule   TEXT    NOT NULL,
    behind TEXT -- as above
) STRICT;

CREATE INDEX artifacts_gone_behind ON artifacts_gone (run_id) WHERE behind IS NOT NULL;
