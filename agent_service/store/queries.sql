-- All statements of the agent's SQLite store. `name` is what the code calls them; parameters come as tuples.

-- name: wake
-- The run of a wake, also a deleted one.
SELECT run_id, wake_digest FROM runs WHERE wake_id = ?1
UNION ALL
SELECT run_id, wake_digest FROM gone WHERE wake_id = ?1;

-- name: add_run
-- A new run; in an index also its row after a later entry.
INSERT INTO runs (
    status, version, head, summary, touched_at, due_at, dispatched, line, state, bytes, run_id,
    wake_id, wake_digest, accepted_at, goal, caller, parent
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id) DO UPDATE SET status = excluded.status, version = excluded.version, head = excluded.head,
    summary = excluded.summary, touched_at = excluded.touched_at, due_at = excluded.due_at,
    dispatched = excluded.dispatched, line = excluded.line, bytes = excluded.bytes
WHERE excluded.version > runs.version;

-- name: advance_run
-- Compare and swap: no row is changed when the run is not at the version before.
UPDATE runs
SET version = ?1, head = ?2, summary = ?3, touched_at = max(touched_at, ?4), due_at = ?5,
    dispatched = max(dispatched, ?6), line = ?7, state = ?8, bytes = bytes + ?9
WHERE run_id = ?10 AND version = ?1 - 1;

-- name: set_status
-- Apart, because naming the column rewrites its index and runs its trigger, also for the same value.
UPDATE runs SET status = ? WHERE run_id = ?;

-- name: leave_alone
-- A newer version has moved this run on, and will fire its timer.
UPDATE runs SET due_at = NULL WHERE run_id = ?;

-- name: indexed
SELECT version, wake_id, line FROM runs WHERE run_id = ?;

-- name: put_brief
INSERT INTO briefs (run_id, brief, common, rest_after)
VALUES (?, ?, (SELECT id FROM common_texts WHERE digest = ?), ?)
ON CONFLICT (run_id) DO UPDATE SET brief = excluded.brief, common = excluded.common, rest_after = excluded.rest_after;

-- name: add_common_text
INSERT INTO common_texts (digest, text) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING;

-- name: append_entry
-- A position of NULL is the next one, after those of deleted runs, too.
INSERT INTO journal (run_id, seq, at, kind, event, facts, previous, hash, position, common, rest_after)
VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?,
    coalesce(?, 1 + max(
        (SELECT coalesce(max(position), 0) FROM journal), (SELECT coalesce(max(last), 0) FROM gone)
    )), (SELECT id FROM common_texts WHERE digest = ?), ?
);

-- name: drop_items
-- The oldest of a field.
DELETE FROM items WHERE rowid IN (SELECT rowid FROM items WHERE run_id = ? AND field = ? ORDER BY rowid LIMIT ?);

-- name: add_item
INSERT INTO items (run_id, field, item) VALUES (?, ?, ?);

-- name: mark_dispatched
UPDATE runs SET dispatched = ?2 WHERE run_id = ?1 AND dispatched < ?2 AND ?2 <= version;

-- name: load
-- The run, then the items of its growing fields by number, at one instant. As bytes, so that damaged text fails this
-- run alone.
SELECT 0 AS number, CAST(state AS BLOB), CAST(brief AS BLOB), head
FROM runs JOIN whole_briefs USING (run_id) WHERE run_id = ?1
UNION ALL
SELECT rowid, CAST(item AS BLOB), CAST(field AS BLOB), NULL FROM items WHERE run_id = ?1;

-- name: undispatched
SELECT run_id, dispatched, version FROM runs WHERE dispatched < version ORDER BY run_id LIMIT ?;

-- name: due
SELECT run_id FROM runs WHERE due_at <= ? ORDER BY due_at LIMIT ?;

-- name: entries
-- A negative limit is none.
SELECT seq, at, kind, event, facts, previous, hash
FROM entries WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?;

-- name: version
SELECT version FROM runs WHERE run_id = ?;

-- name: head
SELECT version, head FROM runs WHERE run_id = ?;

-- name: row
SELECT version, status, due_at, summary, goal FROM runs WHERE run_id = ?;

-- name: newest
SELECT max((SELECT coalesce(max(position), 0) FROM journal), (SELECT coalesce(max(last), 0) FROM gone));

-- name: places
SELECT position, run_id, seq FROM journal WHERE position > ? ORDER BY position LIMIT ?;

-- name: runs
-- Newest first: statuses ?1, ids below ?2 and from ?3 on, accepted at ?4 or later and before ?9, text like ?5 or ?6,
-- tool ?7, caller ?10, ?11 in the id.
SELECT run_id, wake_id, status, goal, summary, accepted_at, touched_at, caller, line FROM runs
WHERE status IN (SELECT value FROM json_each(?1)) AND run_id < ?2 AND run_id >= ?3 AND accepted_at >= ?4
AND accepted_at < ?9 AND instr(run_id, ?11) AND (?10 = '' OR caller = ?10)
AND (?5 = '' OR EXISTS (
    SELECT 1 FROM (SELECT run_id || char(10) || summary || char(10) || goal AS said)
    WHERE said LIKE ?5 ESCAPE '\' OR said LIKE ?6 ESCAPE '\'
))
AND (?7 = '' OR CASE WHEN json_valid(line) THEN EXISTS (SELECT 1 FROM json_each(line, '$.tools') WHERE value = ?7) END)
ORDER BY run_id DESC LIMIT ?8;

-- name: stretch
-- The oldest of the ?2 runs below ?1.
SELECT run_id, accepted_at FROM runs WHERE run_id < ?1 ORDER BY run_id DESC LIMIT 1 OFFSET ?2 - 1;

-- name: queued
SELECT run_id FROM runs WHERE status = 'queued' ORDER BY run_id LIMIT ?;

-- name: changed_since
-- Open runs that changed, or all with ?2, and ended ones that changed. SQLite uses the index only if the statuses of the
-- second half are word for word those of the index.
SELECT run_id FROM runs WHERE status IN ('queued', 'running', 'paused') AND (touched_at >= ?1 OR ?2)
UNION ALL
SELECT run_id FROM runs INDEXED BY runs_ended
WHERE status IN ('done', 'escalated', 'failed', 'cancelled') AND touched_at >= ?1;

-- name: sums
-- Over runs that were accepted from ?1 on and before ?2. A parent's cost includes that of its children.
WITH listed AS (
    SELECT status, CASE WHEN json_valid(line) THEN line ELSE '{}' END AS line, wake_id LIKE 'child:%' AS is_child
    FROM runs WHERE accepted_at >= ?1 AND accepted_at < ?2
), counted AS (
    SELECT 'status' AS kind, status AS name, line FROM listed WHERE NOT is_child
    UNION ALL
    SELECT 'failure', json_extract(line, '$.ending_class'), line FROM listed
    WHERE status IN ('failed', 'escalated') AND NOT is_child
    UNION ALL
    SELECT 'model', value, line FROM listed, json_each(line, '$.models') WHERE NOT is_child
    UNION ALL
    SELECT 'tool', value, line FROM listed, json_each(line, '$.tools')
)
SELECT kind, coalesce(name, ''), count(*), sum(json_extract(line, '$.cost_usd') IS NULL),
    total(json_extract(line, '$.cost_usd')), sum(coalesce(json_extract(line, '$.tokens'), 0))
FROM counted GROUP BY kind, name ORDER BY kind, count(*) DESC, name;

-- name: counts
SELECT status, runs FROM tallies;

-- name: for_people
-- Newest first: paused runs, and escalated ones without a dismissal since their newest entry, but for children, which
-- answer their parents. The statuses are word for word those of the index.
SELECT run_id, touched_at FROM runs INDEXED BY runs_for_people
WHERE status IN ('paused', 'escalated') AND NOT (status = 'escalated' AND wake_id LIKE 'child:%') AND NOT EXISTS (
    SELECT 1 FROM dismissals WHERE dismissals.run_id = runs.run_id AND dismissals.version >= runs.version
)
ORDER BY touched_at DESC LIMIT ?;

-- name: count_for_people
SELECT count(*) FROM runs
WHERE status IN ('paused', 'escalated') AND NOT (status = 'escalated' AND wake_id LIKE 'child:%') AND NOT EXISTS (
    SELECT 1 FROM dismissals WHERE dismissals.run_id = runs.run_id AND dismissals.version >= runs.version
);

-- name: dismiss
-- The first dismissal of a version stays.
INSERT INTO dismissals (run_id, version, by, at) VALUES (?, ?, ?, ?)
ON CONFLICT (run_id) DO UPDATE SET version = excluded.version, by = excluded.by, at = excluded.at
WHERE excluded.version > dismissals.version;

-- name: spend
INSERT INTO spending (day, caller, usd, bytes) VALUES (?, ?, ?, ?)
ON CONFLICT (day, caller) DO UPDATE SET usd = usd + excluded.usd, bytes = bytes + excluded.bytes;

-- name: spent
SELECT caller, usd, bytes FROM spending WHERE day = ?;

-- name: open_runs
-- By caller, without child runs.
SELECT caller, count(*) FROM runs
WHERE status IN ('queued', 'running', 'paused') AND caller <> '' AND wake_id NOT LIKE 'child:%' GROUP BY caller;

-- name: set_aside
-- For model calls in flight.
SELECT run_id, caller, CASE WHEN json_valid(line) THEN line ->> '$.reserved_usd' END AS usd
FROM runs WHERE status = 'running' AND usd IS NOT NULL;

-- name: calls
-- Model calls among the newest ?1 positions, since ?2.
SELECT run_id, seq, at, kind, event, facts, previous, hash FROM journal
WHERE position > (SELECT coalesce(max(position), 0) FROM journal) - ?1 AND at >= ?2
AND kind IN ('CallReserved', 'ModelReplied', 'ModelUnavailable') ORDER BY position;

-- name: waiting_for_budget
-- Runs whose model call waits for budget.
SELECT run_id FROM runs
WHERE status = 'running' AND CASE WHEN json_valid(line) THEN line ->> '$.waiting_for.kind' END = 'budget';

-- name: keep_halt
INSERT INTO halts (number, since, by, reason, until, until_by, over) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET until = excluded.until, until_by = excluded.until_by, over = excluded.over;

-- name: newest_halt
SELECT number, since, by, reason, until, until_by, over FROM halts ORDER BY number DESC LIMIT 1;

-- name: dismissal
SELECT run_id, version, by, at FROM dismissals WHERE run_id = ?;

-- name: overdue_turns
-- Open runs of an index whose newest entry has no message.
SELECT run_id, version FROM runs INDEXED BY runs_undispatched WHERE dispatched < version AND line ->> '$.own';

-- name: tombstone
SELECT run_id, wake_id, wake_digest, status, last, ended_at, at, rule
FROM gone WHERE run_id = ?;

-- name: tombstones
SELECT run_id, wake_id, wake_digest, status, last, ended_at, at, rule
FROM gone ORDER BY run_id;

-- name: expired
-- Of the statuses ?1, with a newest entry before ?2 (and before ?3 where it escalated), from after (?4, ?5) on, the oldest
-- first; with ?6 those that have artifacts. All is done that they ask for, and no run needs them that is open or can be
-- opened again: a step may still read what its child has brought. The statuses are word for word those of the index.
SELECT run_id, status, version, touched_at, bytes FROM runs INDEXED BY runs_ended
WHERE status IN ('done', 'escalated', 'failed', 'cancelled') AND touched_at >= ?4 AND touched_at < ?2
AND (touched_at > ?4 OR run_id > ?5) AND status IN (SELECT value FROM json_each(?1)) AND dispatched = version
AND (status <> 'escalated' OR touched_at < ?3)
AND (?6 = 0 OR (
    CASE WHEN json_valid(line) THEN line ->> '$.artifacts' END
    AND NOT EXISTS (SELECT 1 FROM artifacts_gone WHERE artifacts_gone.run_id = runs.run_id)
))
AND NOT EXISTS (
    SELECT 1 FROM runs AS above
    WHERE above.run_id = runs.parent AND above.status IN ('queued', 'running', 'paused', 'escalated')
)
AND run_id NOT IN (
    SELECT parent FROM runs AS below WHERE below.status IN ('queued', 'running', 'paused') AND parent IS NOT NULL
)
ORDER BY touched_at, run_id LIMIT ?7;

-- name: going
-- Tombstone columns of a run, unless it has moved on since entry ?2.
SELECT run_id, wake_id, wake_digest, status,
    coalesce((SELECT position FROM journal WHERE journal.run_id = runs.run_id AND seq = version), 0), touched_at
FROM runs
WHERE run_id = ?1 AND version = ?2 AND dispatched = version AND status IN ('done', 'escalated', 'failed', 'cancelled');

-- name: bury
INSERT INTO gone (run_id, wake_id, wake_digest, status, last, ended_at, at, rule, behind)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id) DO NOTHING;

-- name: behind
-- Deleted runs whose files may be left, with their artifacts (1); and runs whose artifacts were deleted (0).
SELECT run_id, behind, 1 FROM gone INDEXED BY gone_behind WHERE behind IS NOT NULL
UNION ALL
SELECT run_id, behind, 0 FROM artifacts_gone INDEXED BY artifacts_gone_behind WHERE behind IS NOT NULL
LIMIT ?;

-- name: cleared
UPDATE gone SET behind = NULL WHERE run_id = ?;

-- name: artifacts_go
INSERT INTO artifacts_gone (run_id, at, rule, behind) VALUES (?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING;

-- name: artifacts_cleared
UPDATE artifacts_gone SET behind = NULL WHERE run_id = ?;

-- name: artifacts_gone
SELECT run_id, at, rule FROM artifacts_gone WHERE run_id = ?;

-- name: with_artifacts
SELECT run_id FROM runs
WHERE CASE WHEN json_valid(line) THEN line ->> '$.artifacts' END AND run_id NOT IN (SELECT run_id FROM artifacts_gone) ORDER BY run_id;

-- name: archived
-- Runs after ?1 by id, or only run ?3, and the rule that deleted their artifacts.
SELECT run_id, wake_id, wake_digest, accepted_at, status, version, head, dispatched,
    coalesce((SELECT rule FROM artifacts_gone WHERE artifacts_gone.run_id = runs.run_id), '')
FROM runs WHERE run_id > ?1 AND run_id >= coalesce(?3, '') AND run_id <= coalesce(?3, '~') ORDER BY run_id LIMIT ?2;

-- name: positions
SELECT position FROM journal WHERE run_id = ? ORDER BY seq;

-- name: all_dismissals
SELECT run_id, version, by, at FROM dismissals ORDER BY run_id;

-- name: all_halts
SELECT number, since, by, reason, until, until_by, over FROM halts ORDER BY number;

-- name: all_artifacts_gone
SELECT run_id, at, rule FROM artifacts_gone ORDER BY run_id;
