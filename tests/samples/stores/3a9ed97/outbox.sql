BEGIN TRANSACTION;
CREATE TABLE deliveries (
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
CREATE INDEX deliveries_due ON deliveries (lane, due_at, position) WHERE outcome IS NULL;
CREATE INDEX deliveries_waiting ON deliveries (lane, run_id, position) WHERE outcome IS NULL;
CREATE INDEX deliveries_gone ON deliveries (target, run_id) WHERE outcome = 'gone';
CREATE INDEX deliveries_settled ON deliveries (settled_at) WHERE outcome IS NOT NULL;
CREATE VIEW heads AS
SELECT * FROM deliveries AS d
WHERE outcome IS NULL AND NOT EXISTS (
    SELECT 1 FROM deliveries AS earlier
    WHERE earlier.outcome IS NULL AND earlier.lane = d.lane AND earlier.run_id = d.run_id
        AND earlier.position < d.position
);
COMMIT;
PRAGMA user_version=1;
