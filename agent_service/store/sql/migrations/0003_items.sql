-- What grows with every step of a run, item by item in the order of rowid: an entry adds to it, and rewrites none of it.

CREATE TABLE items (
    run_id TEXT NOT NULL REFERENCES runs,
    field  TEXT NOT NULL, -- of the state
    item   TEXT NOT NULL  -- JSON
) STRICT;

CREATE INDEX items_of_run ON items (run_id, field);

INSERT INTO items (run_id, field, item)
SELECT runs.run_id, field.key, CASE item.type WHEN 'text' THEN json_quote(item.value) ELSE item.value END
FROM runs,
     json_each(CASE WHEN json_valid(state) THEN state ELSE '{}' END) AS field,
     json_each(CASE field.type WHEN 'array' THEN field.value ELSE '[]' END) AS item
WHERE field.key IN ('notes', 'completed', 'artifacts', 'facts', 'messages', 'signals', 'late')
ORDER BY runs.run_id, field.key, item.key;

UPDATE runs SET state = json_remove(
    state, '$.notes', '$.completed', '$.artifacts', '$.facts', '$.messages', '$.signals', '$.late'
) WHERE json_valid(state);
