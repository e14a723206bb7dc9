"""The entries of runs that this member sees to, and which of them are done: what it tells the others of."""

from collections.abc import Iterable

from agent_service.store.facts import Span


class OwnEntries:
    """By run. Entries of others are nobody's business here, whatever is said to be done."""

    def __init__(self) -> None:
        self._open: dict[str, set[int]] = {}
        self._done: dict[str, set[int]] = {}

    def add(self, run_id: str, seqs: Iterable[int]) -> None:
        self._open.setdefault(run_id, set()).update(seqs)

    def done(self, run_id: str, since: int, upto: int) -> bool:
        """Entries from `since` to `upto` are done, as far as they are ours; whether any was not known to be."""
        left = self._open.get(run_id, set())
        done = {seq for seq in left if since <= seq <= upto}
        if not done:
            return False
        left -= done
        if not left:
            del self._open[run_id]
        self._done.setdefault(run_id, set()).update(done)
        return True

    def to_tell(self, run_id: str) -> tuple[Span, ...]:
        """What is done of a run; it counts as told from now on."""
        return spans(self._done.pop(run_id, ()))

    def all_to_tell(self, runs: int) -> dict[str, tuple[Span, ...]]:
        """The same of many, at most `runs`."""
        return {run_id: self.to_tell(run_id) for run_id in list(self._done)[:runs]}

    def not_told(self, run_id: str, told: Iterable[Span]) -> None:
        """What was to be told could not be."""
        for since, upto in told:
            self._done.setdefault(run_id, set()).update(range(since, upto + 1))


def spans(seqs: Iterable[int]) -> tuple[Span, ...]:
    found: list[Span] = []
    for seq in sorted(seqs):
        if found and found[-1][1] == seq - 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return tuple(found)
