"""The box of each call: what an operator has set, what a plugin is configured with and what this machine has, put
together to the order that is run; and what is told of it.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from ductile_gateway.plugins import boundary
from ductile_gateway.plugins.boundary import Boundary, NoSuchBoundary
from ductile_gateway.plugins.box import reach
from ductile_gateway.plugins.box.limits import Limits
from ductile_gateway.plugins.box.order import Order, User
from ductile_gateway.plugins.box.reach import DEVICES, PROC, Reach, named
from ductile_gateway.plugins.box.view import TEMPORARY
from ductile_gateway.settings import PluginSettings
from groundwork.service.errors import Misconfigured

MARK = "AGENTIC_CALL"
"""The variable by which the processes of a call are known where their guard was killed."""
OWN = ("work", "tmp")


@dataclass(frozen=True, slots=True)
class Box:
    """`reach` beside what belongs to the call and its plugin."""

    limits: Limits = field(default_factory=Limits)
    boundary: Boundary = field(default_factory=lambda: Boundary("none"))
    reach: Reach = field(default_factory=Reach)

    def order(
        self,
        folder: Path,
        *,
        plugin: Path,
        entrypoint: Path,
        environment: Mapping[str, str],
        config: Iterable[object],
        seconds: float,
    ) -> Order:
        """How a call of the plugin in that folder is run. Makes the place where it may write. Raises OSError."""
        place, files = _place(folder, self.boundary.user), self.boundary.files
        own = [str(place / name) for name in OWN]
        others = {str(folder.parent), str(place.parent)}.difference(TEMPORARY)
        return Order(
            folder=str(folder),
            place=str(place),
            entrypoint=str(entrypoint),
            environment={**environment, "TMPDIR": own[1], MARK: folder.name},
            seconds=seconds,
            limits=self.limits,
            landlock=files == "landlock",
            view=files == "view" or self.boundary.hides,
            read=(*self.reach.read, *self.reach.allowed([plugin]), *PROC, f"{folder}/request"),
            write=(*self.reach.write, *self.reach.allowed(named(config)), *own, *DEVICES),
            frozen=self.reach.frozen,
            closed=(*others, *map(str, (*self.reach.closed, *self.reach.apart))),
            user=self.boundary.user,
        )


def mark_of(folder: Path) -> bytes:
    return f"{MARK}={folder.name}".encode()


def _place(folder: Path, user: User | None) -> Path:
    place = folder if user is None else Path(tempfile.mkdtemp(prefix="agentic-call-")).resolve()
    for name in OWN:
        (place / name).mkdir(mode=0o700, exist_ok=True)
    if user is not None:
        for path in (place, *(place / name for name in OWN)):
            os.chown(path, user.uid, user.gid)
    return place


def box_of(settings: PluginSettings, environment: Mapping[str, str]) -> Box:
    """`environment`: what plugins see; paths in its variables are in reach. Raises Misconfigured."""
    passed_on = reach.named(environment.get(name) for name in settings.environment)
    return Box(
        Limits(**settings.limits.model_dump()),
        boundary_of(settings),
        reach.drawn(
            read=chain(reach.of_programs(environment), _whole(settings.read)),
            write=chain(passed_on, _whole(settings.write)),
            closed=chain(_whole(settings.closed), reach.doors()),
            frozen=_whole(settings.folders),
            apart=_whole(settings.apart),
        ),
    )


def boundary_of(settings: PluginSettings) -> Boundary:
    try:
        return boundary.found(settings.boundary, settings.run_as)
    except NoSuchBoundary as error:
        raise Misconfigured(f"gateway.plugins: {error}") from None


def _whole(paths: Sequence[Path]) -> Sequence[Path]:
    return [path.expanduser() for path in paths]
