-- Where several gateways have this in common: the id of the one whose a call or a delivery is; '' where there is one.
ALTER TABLE calls ADD COLUMN by TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN by TEXT NOT NULL DEFAULT '';

-- The keys by which the agent's word is known, the newest first. One gateway alone keeps them in a file.
CREATE TABLE pins (
    place     INTEGER PRIMARY KEY,
    id        TEXT NOT NULL,
    public    TEXT NOT NULL,
    pinned_at TEXT NOT NULL
) STRICT;
