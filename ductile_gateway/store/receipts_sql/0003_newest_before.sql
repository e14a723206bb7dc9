-- Ductile's newest job of the command just before the call was sent: its own is none of those up to there. '' where it
-- had none, NULL where it did not say.
ALTER TABLE receipts ADD COLUMN newest TEXT;
