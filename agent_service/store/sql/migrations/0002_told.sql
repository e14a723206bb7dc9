-- What is to be said to the bus follows from state and journal, so effects are not stored besides. Of those that earlier
-- versions left here, the runs are resumed from before the oldest of them, and so each is said once more.

ALTER TABLE runs ADD COLUMN told INTEGER NOT NULL DEFAULT 0; -- all is done that entries up to this one ask for

UPDATE runs SET told = version;

UPDATE runs SET told = (
    SELECT min(seq) - 1 FROM outbox JOIN journal USING (position) WHERE journal.run_id = runs.run_id
) WHERE run_id IN (SELECT run_id FROM outbox JOIN journal USING (position));

CREATE INDEX runs_untold ON runs (run_id) WHERE told < version;

DROP TABLE outbox;
