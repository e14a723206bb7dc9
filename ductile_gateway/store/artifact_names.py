"""The row of a run's artifacts: the names that they have, each one call's. Pure."""

from collections.abc import Collection, Sequence
from datetime import datetime

from ductile_gateway.calls.call import WantedName
from groundwork.service.errors import NoRoom
from schemas.values import dataclass


@dataclass(frozen=True, slots=True)
class Artifact:
    """`key`: of its call. `sha256` in hex, `size` in bytes."""

    name: str
    key: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactNames:
    """`at`: when the newest was named."""

    run_id: str
    at: datetime
    all: tuple[Artifact, ...]
    state: str = "named"
    body: bytes = b""

    def of_call(self, key: str) -> tuple[str, ...]:
        return tuple(one.name for one in self.all if one.key == key)

    def digest_of(self, name: str) -> str | None:
        return next((one.sha256 for one in self.all if one.name.lower() == name.lower()), None)


def taken(
    kept: ArtifactNames | None, *, run_id: str, key: str, wanted: Sequence[WantedName], most: int, at: datetime
) -> ArtifactNames:
    """The run's artifacts with those of the call in place of what it had. Raises NoRoom, and ValueError where all
    candidates for a name are taken."""
    others = [one for one in kept.all if one.key != key] if kept else []
    _check_room(sum(one.size for one in others), sum(one.size for one in wanted), most=most)
    found = list(others)
    for one in wanted:
        name = _free({other.name.lower() for other in found}, key, one.candidates)
        found.append(Artifact(name, key, one.sha256, one.size))
    if kept and list(kept.all) == found:
        return kept
    return ArtifactNames(at=at, run_id=run_id, all=tuple(found))


def _check_room(kept: int, more: int, *, most: int) -> None:
    if kept + more > most:
        may = f"the {most >> 20} MiB that a run may keep (gateway.run_mb)"
        raise NoRoom(f"its artifacts take {kept} bytes already, and with {more} more they would take more than {may}")


def _free(taken: Collection[str], key: str, candidates: Sequence[str]) -> str:
    for name in candidates:
        if name.lower() not in taken:
            return name
    raise ValueError(f"all names for an artifact of {key} are taken: {', '.join(candidates)}")
