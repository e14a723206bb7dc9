-- Instants are INTEGER microseconds since 1970 UTC. To read them: datetime(completed_at / 1000000, 'unixepoch').

-- One row per call: an intent until `answer` is there. `begun_at`, `job_id`, `way` and `newest` are what a runner needs
-- to find a call again, stored in one write with its intent; NULL where there is nothing to find, and again with the
-- answer.
CREATE TABLE calls (
    position     INTEGER PRIMARY KEY,         -- order of writing
    key          TEXT    NOT NULL UNIQUE,     -- run_id:step:tool:attempt
    digest       TEXT    NOT NULL,            -- of what was asked: another request under the same key is a violation
    trace_id     TEXT    NOT NULL,
    route        TEXT,                        -- NULL, like the next three, for a call that was refused
    may_repeat   INTEGER,
    deadline_at  INTEGER,
    request      BLOB,                        -- the message; dropped with the answer
    run_id       TEXT    NOT NULL,
    step         INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    answer       BLOB,                        -- the message with the result
    completed_at INTEGER,
    published    INTEGER NOT NULL DEFAULT 0,
    begun_at     INTEGER,                     -- just before the call was sent
    job_id       TEXT,                        -- Ductile's; NULL while no answer has come
    way          TEXT CHECK (way IN ('plugin', 'pipeline', 'event')),
    newest       TEXT,                        -- Ductile's newest job of the command just before, '' where it had none
    span_id      TEXT    NOT NULL DEFAULT '', -- 16 hex digits: where in its trace the call was asked for
    sampled      INTEGER NOT NULL DEFAULT 1,  -- whether that is recorded
    task         TEXT,                        -- the sub-request of its step; NULL for the step's own request
    round        INTEGER,                     -- in which the sub-request was asked for
    by           TEXT    NOT NULL DEFAULT ''  -- of several gateways the one whose the call is; '' where there is one
) STRICT;

CREATE INDEX calls_to_finish ON calls (published) WHERE published = 0;
CREATE INDEX calls_by_completion ON calls (completed_at) WHERE completed_at IS NOT NULL;

-- Names that the artifacts of a run have; `place` is an artifact's place among those of its call. What they take
-- together is bounded.
CREATE TABLE artifacts (
    run_id TEXT    NOT NULL,
    name   TEXT    NOT NULL COLLATE NOCASE,
    key    TEXT    NOT NULL,
    place  INTEGER NOT NULL,
    sha256 TEXT,                       -- hex: another content under its name is never taken for it
    bytes  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX artifacts_by_key ON artifacts (key);

-- One row per job that outlived its call, until its end was told, or it was given up.
CREATE TABLE overdue (
    key      TEXT    PRIMARY KEY,  -- run_id:step:tool:attempt
    job_id   TEXT    NOT NULL,     -- Ductile's
    pipeline INTEGER NOT NULL,     -- whether the job is the first of a pipeline's
    since    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per event from outside that was put on the bus.
CREATE TABLE received (
    source      TEXT    NOT NULL,      -- peer or webhook
    identity    TEXT    NOT NULL,      -- what the sender calls it, or the digest of its body
    event_key   TEXT    NOT NULL,      -- Msg-Id of the event that came of it
    received_at INTEGER NOT NULL,
    PRIMARY KEY (source, identity)
) STRICT, WITHOUT ROWID;

CREATE INDEX received_by_age ON received (received_at);

-- One row per event and receiver that is told of it: to be delivered until `outcome` is there.
CREATE TABLE outbox (
    position    INTEGER PRIMARY KEY,     -- order of arrival
    target      TEXT    NOT NULL,        -- relay, callback, or subscription:<name>
    lane        TEXT    NOT NULL,        -- what shares a receiver
    key         TEXT    NOT NULL,        -- the event's dedupe key
    run_id      TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    url         TEXT    NOT NULL,
    body        BLOB    NOT NULL,        -- emptied with the outcome
    accepted_at INTEGER NOT NULL,
    tries       INTEGER NOT NULL DEFAULT 0,
    due_at      INTEGER NOT NULL,
    why         TEXT    NOT NULL DEFAULT '', -- what the last try met
    outcome     TEXT CHECK (outcome IN ('arrived', 'gone', 'dead')),
    settled_at  INTEGER,
    by          TEXT    NOT NULL DEFAULT '', -- as in calls
    UNIQUE (target, key)
) STRICT;

CREATE INDEX outbox_due ON outbox (lane, due_at, position) WHERE outcome IS NULL;
CREATE INDEX outbox_waiting ON outbox (lane, run_id, position) WHERE outcome IS NULL;
CREATE INDEX outbox_gone ON outbox (target, run_id) WHERE outcome = 'gone';
CREATE INDEX outbox_settled ON outbox (settled_at) WHERE outcome IS NOT NULL;

-- Of each run and receiver the first that waits: the others follow it, in their order.
CREATE VIEW heads AS
SELECT * FROM outbox AS one
WHERE outcome IS NULL AND NOT EXISTS (
    SELECT 1 FROM outbox AS earlier
    WHERE earlier.outcome IS NULL AND earlier.lane = one.lane AND earlier.run_id = one.run_id
        AND earlier.position < one.position
);

-- The keys by which the agent's word is known, the newest first. One gateway alone keeps them in a file.
CREATE TABLE pins (
    place     INTEGER PRIMARY KEY,
    id        TEXT NOT NULL,
    public    TEXT NOT NULL,
    pinned_at TEXT NOT NULL
) STRICT;

-- Of a copy: which log it is of, by when that was made, and the newest fact that is in it, stored `at`. A gateway's own
-- store has none.
CREATE TABLE replica (
    created TEXT    NOT NULL,
    reached INTEGER NOT NULL,
    at      TEXT    NOT NULL
) STRICT;
