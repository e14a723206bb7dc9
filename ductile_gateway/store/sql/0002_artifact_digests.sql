-- What an artifact is, so that another content under its name is never taken for it; NULL for those named before.
ALTER TABLE artifacts ADD COLUMN sha256 TEXT; -- hex
