-- Runs that ended in the hands of a person who has seen to it: who said so, and which entry was the newest then.

CREATE TABLE dismissals (
    run_id  TEXT    NOT NULL PRIMARY KEY REFERENCES runs,
    version INTEGER NOT NULL,
    by      TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT;

CREATE INDEX runs_for_people ON runs (touched_at) WHERE status IN ('paused', 'escalated');
