"""How often things happened in this process: a few named numbers that only go up, for metrics and for people."""

from collections.abc import Mapping


class Counts:
    """`Counts({"results_stale": "Results of steps that had ended"})`: each name with what it counts."""

    def __init__(self, meanings: Mapping[str, str]) -> None:
        self._meanings = dict(meanings)
        self._values = dict.fromkeys(meanings, 0)

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def add(self, name: str) -> None:
        """One more. Raises KeyError for a name that was not announced."""
        self._values[name] += 1

    def exposed(self, prefix: str) -> str:
        """In the Prometheus text format (version 0.0.4), as counters `<prefix>_<name>_total`."""
        form = "# HELP {0} {1}\n# TYPE {0} counter\n{0} {2}\n"
        named = ((f"{prefix}_{name}_total", meaning, self[name]) for name, meaning in self._meanings.items())
        return "".join(form.format(*one) for one in named)
