-- Instants are INTEGER microseconds since 1970 UTC. To read them: datetime(completed_at / 1000000, 'unixepoch').

-- One row per call: an intent until `answer` is there.
CREATE TABLE calls (
    position     INTEGER PRIMARY KEY,  -- order of writing
    key          TEXT    NOT NULL UNIQUE, -- run_id:step:tool:attempt
    digest       TEXT    NOT NULL,     -- of what was asked: another request under the same key is a violation
    trace_id     TEXT    NOT NULL,
    route        TEXT,                 -- NULL, like the next three, for a call that was refused
    may_repeat   INTEGER,
    deadline_at  INTEGER,
    request      BLOB,                 -- the message; dropped with the answer
    run_id       TEXT    NOT NULL,
    step         INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    answer       BLOB,                 -- the message with the result
    completed_at INTEGER,
    published    INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX calls_to_finish ON calls (published) WHERE published = 0;
CREATE INDEX calls_by_completion ON calls (completed_at) WHERE completed_at IS NOT NULL;

-- Names that the artifacts of a run have; `place` is an artifact's place among those of its call.
CREATE TABLE artifacts (
    run_id TEXT    NOT NULL,
    name   TEXT    NOT NULL COLLATE NOCASE,
    key    TEXT    NOT NULL,
    place  INTEGER NOT NULL,
    PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX artifacts_by_key ON artifacts (key);
