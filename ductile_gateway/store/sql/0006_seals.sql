-- By a key that is not in this file: the gateway's word for what it wrote. NULL in what an earlier version wrote, until
-- the next start.
ALTER TABLE calls ADD COLUMN seal TEXT;
ALTER TABLE artifacts ADD COLUMN seal TEXT;
