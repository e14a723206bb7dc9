-- Of a sub-request of its step: which, and in which round it was asked for; NULL for the step's own request.
ALTER TABLE calls ADD COLUMN task TEXT;
ALTER TABLE calls ADD COLUMN round INTEGER;
