-- One row per delivery that was put on the bus. Instants are INTEGER microseconds since 1970 UTC.
CREATE TABLE deliveries (
    source      TEXT    NOT NULL,      -- peer or webhook
    identity    TEXT    NOT NULL,      -- what the sender calls it, or the digest of its body
    event_key   TEXT    NOT NULL,      -- Msg-Id of the event that came of it
    received_at INTEGER NOT NULL,
    PRIMARY KEY (source, identity)
) STRICT, WITHOUT ROWID;

CREATE INDEX deliveries_by_age ON deliveries (received_at);
