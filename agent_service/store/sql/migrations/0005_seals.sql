-- By a key that is not in this file, the agent's word for what is in the row and beside it: `<id of the key>.<hex>`.
-- NULL in what an earlier version wrote, until the next start of the agent.
ALTER TABLE runs ADD COLUMN seal TEXT;

CREATE INDEX runs_unsealed ON runs (run_id) WHERE seal IS NULL;
