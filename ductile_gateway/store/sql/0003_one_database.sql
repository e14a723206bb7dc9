-- What a runner needs to find a call again, stored in one write with its intent; NULL where there is nothing to find,
-- and again with the answer. `begun_at`: just before the call was sent. `job_id`: Ductile's, NULL while no answer has
-- come. `newest`: Ductile's newest job of the command just before, '' where it had none, NULL where it did not say.
ALTER TABLE calls ADD COLUMN begun_at INTEGER;
ALTER TABLE calls ADD COLUMN job_id TEXT;
ALTER TABLE calls ADD COLUMN way TEXT CHECK (way IN ('plugin', 'pipeline', 'event'));
ALTER TABLE calls ADD COLUMN newest TEXT;

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
