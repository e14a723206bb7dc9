-- Runs of another store, which were brought here to be read: nothing is done for them. `at`: when, for what is kept is
-- kept from then on.

CREATE TABLE imported (
    run_id TEXT    NOT NULL PRIMARY KEY REFERENCES runs,
    at     INTEGER NOT NULL
) STRICT;
