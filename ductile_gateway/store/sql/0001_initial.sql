-- Instants are INTEGER microseconds since 1970 UTC. To read them: datetime(at / 1000000, 'unixepoch').

-- One row per value that the gateway remembers, of every kind: call, artifacts, received, notification, pins, restored.
-- `head` is JSON, whose fields are those of the kind's class (calls/ledger, webhooks/outbound ...).
CREATE TABLE rows (
    position INTEGER PRIMARY KEY,             -- order of first writing; of a copy the sequence in the stream
    subject  TEXT    NOT NULL UNIQUE,         -- kind, and the digest of its names
    head     TEXT    NOT NULL,
    body     BLOB    NOT NULL,                -- the message that it keeps: a request, a result, an event
    seq      INTEGER NOT NULL,                -- how often it was changed; of a copy the sequence of its newest fact
    kind     TEXT,                            -- these are in the head, too, and here for lists
    state    TEXT,
    at       INTEGER,
    run_id   TEXT,
    lane     TEXT,                            -- of a notification: what shares a receiver
    by       TEXT,                            -- of several gateways the one whose it is
    is_late  INTEGER                          -- of a call: a job has outlived it
) STRICT;

CREATE INDEX rows_by_state ON rows (kind, state, at);
CREATE INDEX rows_late ON rows (is_late) WHERE is_late;
CREATE INDEX rows_due ON rows (lane, at) WHERE state = 'waiting';
CREATE INDEX rows_waiting ON rows (lane, run_id, position) WHERE state = 'waiting';
CREATE INDEX rows_gone ON rows (lane, run_id) WHERE state = 'gone';

-- Of each run and receiver the first notification that waits: the others follow it, in their order.
CREATE VIEW heads AS
SELECT * FROM rows AS one
WHERE state = 'waiting' AND NOT EXISTS (
    SELECT 1 FROM rows AS earlier
    WHERE earlier.state = 'waiting' AND earlier.lane = one.lane AND earlier.run_id = one.run_id
        AND earlier.position < one.position
);

-- Of a copy: which log it is of, by when that was made, and the newest fact that is in it, stored `at`. A gateway's own
-- store has none.
CREATE TABLE replica (
    created TEXT    NOT NULL,
    reached INTEGER NOT NULL,
    at      TEXT    NOT NULL
) STRICT;
