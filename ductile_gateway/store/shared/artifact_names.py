"""The row of a run's artifacts: the names that they have, each one call's. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ductile_gateway.store.ledger import all_are_taken
from ductile_gateway.store.shared.rows import Row, framed, unframed

Wanted = tuple[Sequence[str], str, int]
"""Of an artifact: candidates for its name, its digest, its size in bytes."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """`place`: among those of its call. `sha256` in hex, `size` in bytes."""

    name: str
    key: str
    place: int
    sha256: str
    size: int

    def is_called(self, name: str) -> bool:
        return self.name.lower() == name.lower()


def read(row: Row) -> list[Artifact]:
    return [] if row.body is None else read_fact(row.body)[1]


def read_fact(fact: bytes) -> tuple[str, list[Artifact]]:
    columns, _ = unframed(fact)
    try:
        return str(columns["run_id"]), [Artifact(**one) for one in columns["artifacts"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no artifacts of a run: {error!r}") from error


def written(run_id: str, artifacts: Sequence[Artifact]) -> bytes:
    return framed({"run_id": run_id, "artifacts": [asdict(one) for one in artifacts]})


def taken(kept: Sequence[Artifact], key: str, wanted: Sequence[Wanted]) -> tuple[list[Artifact], tuple[str, ...]]:
    """The run's artifacts with those of the call, and their names. Raises ValueError where all candidates are taken."""
    by_name = {one.name.lower(): one for one in kept}
    names = []
    for place, (candidates, sha256, size) in enumerate(wanted):
        name = _free(by_name, key, place, candidates)
        known = by_name.get(name.lower())
        by_name[name.lower()] = Artifact(known.name if known else name, key, place, sha256, size)
        names.append(name)
    return list(by_name.values()), tuple(names)


def _free(by_name: Mapping[str, Artifact], key: str, place: int, candidates: Sequence[str]) -> str:
    for name in candidates:
        other = by_name.get(name.lower())
        if other is None or (other.key, other.place) == (key, place):
            return name
    raise all_are_taken(key, candidates)
