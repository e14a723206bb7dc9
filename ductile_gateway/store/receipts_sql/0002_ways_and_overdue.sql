-- How a call was sent: to a plugin or a pipeline by the API, or as an event through the relay ingress.
ALTER TABLE receipts ADD COLUMN way TEXT NOT NULL DEFAULT 'plugin' CHECK (way IN ('plugin', 'pipeline', 'event'));

-- One row per job that outlived its call, until its end was told, or it was given up.
CREATE TABLE overdue (
    key      TEXT    PRIMARY KEY,  -- run_id:step:tool:attempt
    job_id   TEXT    NOT NULL,     -- Ductile's
    pipeline INTEGER NOT NULL,     -- whether the job is the first of a pipeline's
    since    INTEGER NOT NULL      -- microseconds since 1970 UTC
) STRICT, WITHOUT ROWID;
