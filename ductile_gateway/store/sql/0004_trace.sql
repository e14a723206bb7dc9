-- Where in its trace a call was asked for, and whether that is recorded; '' where the request did not say.
ALTER TABLE calls ADD COLUMN span_id TEXT NOT NULL DEFAULT ''; -- 16 hex digits
ALTER TABLE calls ADD COLUMN sampled INTEGER NOT NULL DEFAULT 1;
