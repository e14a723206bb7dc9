-- What is left of runs that are kept no longer. The newest entry that ever was may be that of such a run: positions are
-- never given twice.

CREATE TABLE gone (
    run_id      TEXT    NOT NULL PRIMARY KEY,
    wake_id     TEXT    NOT NULL,
    wake_digest TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    head        BLOB    NOT NULL,
    first       INTEGER NOT NULL, -- position of its first entry in the journal of all runs
    last        INTEGER NOT NULL, -- and of its newest one
    ended_at    INTEGER NOT NULL,
    at          INTEGER NOT NULL, -- when it went
    rule        TEXT    NOT NULL,
    seal        TEXT,
    behind      TEXT              -- JSON: its artifacts, whose contents are to be removed with its folder; NULL once that is done
) STRICT;

CREATE INDEX gone_by_wake ON gone (wake_id);
CREATE INDEX gone_last ON gone (last);
CREATE INDEX gone_behind ON gone (run_id) WHERE behind IS NOT NULL;

INSERT INTO tallies (status) VALUES ('gone');

CREATE TRIGGER tally_tombstone AFTER INSERT ON gone BEGIN
    UPDATE tallies SET runs = runs + 1 WHERE status = 'gone';
END;

-- Artifacts that went before their run did: of which run, when, and by which rule.
CREATE TABLE artifacts_gone (
    run_id TEXT    NOT NULL PRIMARY KEY REFERENCES runs,
    at     INTEGER NOT NULL,
    rule   TEXT    NOT NULL,
    behind TEXT -- as above
) STRICT;

CREATE INDEX artifacts_gone_behind ON artifacts_gone (run_id) WHERE behind IS NOT NULL;
