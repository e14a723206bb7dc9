-- What moving runs from one store into another reads of both.

-- name: stretch
-- Entries of all runs after a position, with how far their run has come and how far it was told.
SELECT position, run_id, seq, entries.at, kind, event, facts, previous, hash, version, told
FROM entries JOIN runs USING (run_id) WHERE position > ? ORDER BY position LIMIT ?;

-- name: asked
SELECT wake_id, wake_digest, accepted_at, goal, brief FROM runs JOIN whole_briefs USING (run_id) WHERE run_id = ?;

-- name: newest_row
SELECT status, summary, due_at, state, goal, brief FROM runs JOIN whole_briefs USING (run_id) WHERE run_id = ?;

-- name: items
SELECT field, item FROM items WHERE run_id = ? ORDER BY rowid;

-- name: items_there
SELECT field, count(*) FROM items WHERE run_id = ? GROUP BY field;

-- name: hash_of
SELECT hash FROM journal WHERE run_id = ? AND seq = ?;

-- name: newest_place
-- The run's newest entry, and its position.
SELECT seq, position FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1;

-- name: all_spending
SELECT day, caller, usd, bytes FROM spending ORDER BY day, caller;

-- name: all_open
SELECT caller, open_runs FROM callers ORDER BY caller;

-- name: all_told
SELECT run_id, told FROM runs ORDER BY run_id;

-- name: all_dismissals
SELECT run_id, version, by, at FROM dismissals ORDER BY run_id;

-- name: all_halts
SELECT number, since, by, reason, until, until_by, over FROM halts ORDER BY number;

-- name: all_gone
SELECT run_id FROM gone ORDER BY run_id;

-- name: compared_runs
SELECT run_id, wake_id, wake_digest, accepted_at, status, version, head, summary, touched_at, due_at, state, told
FROM runs ORDER BY run_id;

-- name: compared_journal
SELECT run_id, seq, at, kind, event, facts, previous, hash FROM entries ORDER BY run_id, seq;

-- name: compared_briefs
SELECT run_id, goal, brief FROM whole_briefs ORDER BY run_id;

-- name: compared_items
SELECT run_id, field, item FROM items ORDER BY run_id, field, rowid;

-- name: compared_dismissals
SELECT run_id, version, by, at FROM dismissals ORDER BY run_id;

-- name: compared_gone
-- Without their places in the order of all entries.
SELECT run_id, wake_id, wake_digest, status, ended_at, at, rule FROM gone ORDER BY run_id;

-- name: compared_spending
SELECT day, caller, usd, bytes FROM spending ORDER BY day, caller;

-- name: compared_callers
SELECT caller, open_runs FROM callers WHERE open_runs <> 0 ORDER BY caller;

-- name: compared_halts
SELECT number, since, by, reason, until, until_by, over FROM halts ORDER BY number;
