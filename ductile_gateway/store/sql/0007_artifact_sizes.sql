-- What the artifacts of a run take together is bounded; 0 for those named before.
ALTER TABLE artifacts ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
