-- Runs that ended long ago may go.

CREATE TRIGGER tally_gone_run AFTER DELETE ON runs BEGIN
    UPDATE tallies SET runs = runs - 1 WHERE status = old.status;
END;
