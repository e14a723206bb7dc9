-- What many runs have in common, such as the tools on offer, is stored once: a row of the journal or a brief has the rest,
-- valid JSON by itself, and where in it the text belongs. Rows of before have all of theirs.

CREATE TABLE common_texts (
    id     INTEGER PRIMARY KEY,
    digest BLOB    NOT NULL UNIQUE, -- SHA-256 of the text
    text   TEXT    NOT NULL
) STRICT;

ALTER TABLE journal ADD COLUMN common INTEGER REFERENCES common_texts; -- NULL: the row has all
ALTER TABLE journal ADD COLUMN rest_after INTEGER;                     -- characters of the row behind it
ALTER TABLE briefs ADD COLUMN common INTEGER REFERENCES common_texts;
ALTER TABLE briefs ADD COLUMN rest_after INTEGER;

-- The same rows, with all of their text. One that is not there any more is missing in it, which hashes and seals tell.

CREATE VIEW entries AS
SELECT position, run_id, seq, at, kind, effects_digest, previous, hash, by,
    CASE WHEN common IS NULL THEN event ELSE
        substr(event, 1, length(event) - rest_after) || coalesce((SELECT text FROM common_texts WHERE id = common), '')
        || substr(event, length(event) - rest_after + 1)
    END AS event
FROM journal;

CREATE VIEW whole_briefs AS
SELECT run_id, goal,
    CASE WHEN common IS NULL THEN brief ELSE
        substr(brief, 1, length(brief) - rest_after) || coalesce((SELECT text FROM common_texts WHERE id = common), '')
        || substr(brief, length(brief) - rest_after + 1)
    END AS brief
FROM briefs;
