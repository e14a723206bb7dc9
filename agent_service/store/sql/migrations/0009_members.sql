-- Who wrote what, where several agents share a store and each keeps this database as its copy. '' is: this agent alone.

ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT ''; -- the member that wrote the newest entry
ALTER TABLE journal ADD COLUMN by TEXT NOT NULL DEFAULT '';

-- Entries beyond `told` of which all is done as well, while an older one of another member is not.
CREATE TABLE told_apart (
    run_id TEXT    NOT NULL REFERENCES runs,
    since  INTEGER NOT NULL,
    upto   INTEGER NOT NULL,
    PRIMARY KEY (run_id, since)
) STRICT, WITHOUT ROWID;

-- Facts of the shared store that this copy could not take in.
CREATE TABLE skipped (
    position INTEGER NOT NULL PRIMARY KEY,
    run_id   TEXT    NOT NULL, -- '' where it says of none
    version  INTEGER NOT NULL, -- of the facts that its writer knows; 0 for what no agent wrote
    why      TEXT    NOT NULL
) STRICT;

CREATE INDEX skipped_of_run ON skipped (run_id);
