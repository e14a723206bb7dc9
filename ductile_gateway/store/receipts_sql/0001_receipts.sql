-- One row per call that was or may have been handed to Ductile, until its verdict is recorded elsewhere.
CREATE TABLE receipts (
    key      TEXT    PRIMARY KEY,  -- run_id:step:tool:attempt
    begun_at INTEGER NOT NULL,     -- microseconds since 1970 UTC; before the request was sent
    job_id   TEXT                  -- Ductile's; NULL while no answer has come
) STRICT, WITHOUT ROWID;
