"""Run turns: take in an event, decide, commit, and perform the effects."""
