"""What is wrong with the settings: gathered while they are read, told all at once. No value is ever part of it."""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

Keys = tuple[str, ...]


class Misconfigured(Exception):
    """Settings that a person has to correct. `problems`: one line each, with place, fault and what is expected."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n  ".join(("the settings cannot be used:", *self.problems)))


@dataclass(frozen=True, slots=True)
class Problems:
    """The first problem of each key, because further ones mostly follow from it."""

    file: str
    origins: dict[Keys, str] = field(default_factory=dict)
    """Places of values that are not written in the file where their key says: environment, shared section."""
    found: dict[Keys, str] = field(default_factory=dict)

    def report(self, keys: Keys, problem: str, *, written_as: str = "") -> None:
        """`written_as`: the last key as the user wrote it, if it is another one."""
        place = self.place((*keys[:-1], written_as) if written_as else keys)
        self.found.setdefault(keys, f"{place}: {problem}")

    def report_unknown(self, keys: Keys, known: Collection[str]) -> None:
        near = difflib.get_close_matches(keys[-1], known, n=1)
        advice = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
        self.report(keys, f"no such setting; {advice}")

    def place(self, keys: Keys) -> str:
        for length in range(len(keys), 0, -1):
            if origin := self.origins.get(keys[:length]):
                return ".".join((origin, *keys[length:]))
        return f"{self.file}: {'.'.join(keys) or 'top level'}"
