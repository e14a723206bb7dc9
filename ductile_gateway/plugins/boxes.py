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
from ductile_gateway.plugins.box.reach import DEVICES, PROC, TEMPORARY, Reach, named, outermost
from ductile_gateway.settings import PluginSettings
from groundwork.service.errors import Misconfigured
from schemas.gateway_status import Finding

REMEDY = "a kernel with landlock, bubblewrap, or run_as keep them from it: docs/SECURITY.md, plugins"
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
        read = (*self.reach.read, *self.reach.allowed([plugin]))
        write = (*self.reach.write, *self.reach.allowed(named(config)))
        return Order(
            folder=str(folder),
            place=str(place),
            entrypoint=str(entrypoint),
            environment={**environment, "TMPDIR": own[1], MARK: folder.name},
            seconds=seconds,
            limits=self.limits,
            landlock=files == "landlock",
            view=files == "view",
            read=(*read, *PROC),
            write=outermost(map(Path, (*write, *_open_to_all()))) if files == "view" else (*write, *own, *DEVICES),
            frozen=self.reach.frozen,
            closed=tuple(map(str, self.reach.closed)),
            user=self.boundary.user,
            before=_bubble(self.boundary.bwrap, read, (*write, *own), own[0]) if files == "bwrap" else (),
        )


def _open_to_all() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*TEMPORARY, os.path.realpath(tempfile.gettempdir()))))


def mark_of(folder: Path) -> bytes:
    """What stands in the environment of the call's processes."""
    return f"{MARK}={folder.name}".encode()


def _place(folder: Path, user: User | None) -> Path:
    """The call's own folder, or one that another user can come to: what lies around ours is closed to others."""
    place = folder if user is None else Path(tempfile.mkdtemp(prefix="agentic-call-"))
    for name in OWN:
        (place / name).mkdir(mode=0o700, exist_ok=True)
    if user is not None:
        for path in (place, *(place / name for name in OWN)):
            os.chown(path, user.uid, user.gid)
    return place


def _bubble(bwrap: str, read: Iterable[str], write: Iterable[str], work: str) -> tuple[str, ...]:
    """The arguments of bubblewrap, for a box of the same reach; with processes and a /proc of its own."""
    own = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL")
    kernels = ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")  # noqa: S108 - inside of it
    reads = (argument for path in read for argument in ("--ro-bind-try", path, path))
    writes = (argument for path in write for argument in ("--bind-try", path, path))
    return (bwrap, *own, *kernels, *reads, *writes, "--chdir", work, "--")


def box_of(settings: PluginSettings, environment: Mapping[str, str]) -> Box:
    """`environment`: what plugins see; the paths in the variables that the settings name are in reach. Raises
    Misconfigured."""
    passed_on = reach.named(environment.get(name) for name in settings.environment)
    return Box(
        Limits(**settings.limits.model_dump()),
        boundary_of(settings),
        reach.drawn(
            read=chain(reach.of_programs(environment), _absolute(settings.read)),
            write=chain(passed_on, _absolute(settings.write)),
            closed=chain(_absolute(settings.closed), reach.doors()),
            frozen=_absolute(settings.folders),
        ),
    )


def boundary_of(settings: PluginSettings) -> Boundary:
    """Raises Misconfigured where what is asked for is not to be had."""
    try:
        return boundary.found(settings.boundary, settings.run_as)
    except NoSuchBoundary as error:
        raise Misconfigured(f"gateway.plugins: {error}") from None


def look_at_boundary(found: Boundary) -> Sequence[Finding]:
    """What holds plugins, for doctor."""
    if found.is_closed:
        return [Finding(name="plugins", mark="ok", text=found.told())]
    text = f"{found.told()}: the stores and settings of the services are in their reach"
    return [Finding(name="plugins", mark="warning", text=text, remedy=REMEDY)]


def _absolute(paths: Sequence[Path]) -> Sequence[Path]:
    return [path.expanduser().absolute() for path in paths]
