-- How a call was sent: as an event through the relay ingress, or by the API.
ALTER TABLE receipts ADD COLUMN relayed INTEGER NOT NULL DEFAULT 0;

-- One row per job that outlived its call, until its end was told, or it was given up.
CREATE TABLE overdue (
    key      TEXT    PRIMARY KEY,  -- run_id:step:tool:attempt
    job_id   TEXT    NOT NULL,     -- Ductile's
    pipeline INTEGER NOT NULL,     -- whether the job is the first of a pipeline's
    since    INTEGER NOT NULL      -- microseconds since 1970 UTC
) STRICT, WITHOUT ROWID;
