"""The box of each call: what an operator has set and a plugin is configured with becomes the order that is run."""

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ductile_gateway.plugins.box.boundary import Boundary
from ductile_gateway.plugins.box.limits import Limits
from ductile_gateway.plugins.box.order import Order, User
from ductile_gateway.plugins.box.reach import DEVICES, PROC, Reach, named

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
        place = _place(folder, self.boundary.user)
        own = [place / name for name in OWN]
        read = (*self.reach.read, *self.reach.allowed([plugin]))
        write = (*self.reach.write, *self.reach.allowed(named(config)), *map(str, own))
        return Order(
            folder=str(folder),
            place=str(place),
            entrypoint=str(entrypoint),
            environment={**environment, "TMPDIR": str(place / "tmp"), MARK: folder.name},
            seconds=seconds,
            limits=self.limits,
            landlock=self.boundary.files == "landlock",
            read=(*read, *PROC),
            write=(*write, *DEVICES),
            user=self.boundary.user,
            before=_bubble(self.boundary.bwrap, read, write, own[0]) if self.boundary.files == "bwrap" else (),
        )


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


def _bubble(bwrap: str, read: Iterable[str], write: Iterable[str], work: Path) -> tuple[str, ...]:
    """The arguments of bubblewrap, for a box of the same reach; with processes and a /proc of its own."""
    own = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL")
    kernels = ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")  # noqa: S108 - inside of it
    reads = (argument for path in read for argument in ("--ro-bind-try", path, path))
    writes = (argument for path in write for argument in ("--bind-try", path, path))
    return (bwrap, *own, *kernels, *reads, *writes, "--chdir", str(work), "--")
