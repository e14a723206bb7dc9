"""The box of each plugin: its boundary, the paths in it, and the order from the settings of operator and plugin."""

import contextlib
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal, NamedTuple

import ductile_gateway
from ductile_gateway.plugins.box import boundaries
from ductile_gateway.plugins.box.order import Order, ProcessLimits, User
from ductile_gateway.plugins.folders import is_there, runs_on_our_python
from ductile_gateway.settings import PluginSettings
from groundwork.service.errors import Misconfigured
from schemas.values import dataclass, replace

Files = Literal["view", "landlock", "none"]
Wanted = Files | Literal["auto"]
VIEW_PROBE = """
import sys
sys.path.append(sys.argv[1])
from ductile_gateway.plugins.box.boundaries import can_enter_view
sys.exit(0 if can_enter_view() else 1)
"""
SIGNALS_SINCE, TRUNCATION_SINCE = 6, 3
"""The ABI of landlock that confines signals, and the truncation of files."""
NOT_ROOT = "name a user in gateway.plugins.run_as, or start the gateway as another user than root"


@dataclass(frozen=True, slots=True)
class Boundary:
    """`abi`: of landlock. `hides`: a view besides landlock hides sockets. `user`: None for the gateway's own."""

    files: Files
    abi: int = 0
    hides: bool = False
    user: User | None = None

    def describe(self) -> str:
        own = "root" if os.getuid() == 0 else "the gateway's own user"
        user = pwd.getpwuid(self.user.uid).pw_name if self.user else own
        since = {"signals": SIGNALS_SINCE, "cutting files short": TRUNCATION_SINCE}
        gaps = " nor ".join(what for what, abi in since.items() if self.abi < abi)
        missing = f": not {gaps}" if gaps else ""
        files = {
            "view": "mounts hide stores, settings and other calls",
            "landlock": f"landlock (ABI {self.abi}{missing}) confines each to its own files"
            f"{', and sockets of this machine are hidden' if self.hides else ''}",
            "none": "each may read and write what its user may",
        }
        return f"{files[self.files]}; they run as {user}, within limits"


def choose_boundary(wanted: Wanted, run_as: str | None) -> Boundary:
    """Returns the wanted boundary, or with `auto` the strongest. Raises Misconfigured, also where plugins would be root
    without landlock."""
    user, abi = _user(run_as), boundaries.landlock_abi()
    if wanted == "landlock" and not abi:
        raise Misconfigured("this kernel has no landlock switched on: choose another boundary")
    would_be_root = os.getuid() == 0 and user is None
    if would_be_root and (wanted in ("view", "none") or not abi):
        why = f"boundary: {wanted}" if abi else "a kernel without landlock"
        raise Misconfigured(f"with {why} plugins would be root: {NOT_ROOT}")
    files = _files(wanted, abi, would_be_root=would_be_root)
    if wanted == "view" and files != "view":
        raise Misconfigured("mounts of their own are not allowed here: start as root, or choose another boundary")
    # Landlock does not close sockets with a path, and their services let root in.
    hides = files == "landlock" and would_be_root and _has_view()
    return Boundary(files, abi=abi, hides=hides, user=user)


def _files(wanted: Wanted, abi: int, *, would_be_root: bool) -> Files:
    """Landlock first, because it denies by default; without control of truncation only where there is no view."""
    if wanted in ("none", "landlock"):
        return wanted
    if wanted == "auto" and (abi >= TRUNCATION_SINCE or would_be_root):
        return "landlock"
    return "view" if _has_view() else "landlock" if abi else "none"


def _has_view() -> bool:
    root = Path(ductile_gateway.__file__).parents[1]
    command = [sys.executable, "-I", "-S", "-c", VIEW_PROBE, str(root)]
    tried = subprocess.run(command, env={}, check=False, capture_output=True)  # noqa: S603 - no text of others
    return tried.returncode == 0


def _user(name: str | None) -> User | None:
    if name is None:
        return None
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise Misconfigured(f"run_as: there is no user {name}") from None
    if entry.pw_uid == os.getuid():
        return None
    if os.getuid() != 0:
        raise Misconfigured("run_as: only root may run plugins as another user: leave it out, or start as root")
    return User(entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(name, entry.pw_gid)))


SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm"),
    *("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"),
)
ETC = (
    *("alternatives", "ca-certificates", "crypto-policies", "default/locale", "fonts", "gitconfig", "java", "magic"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "mime.types", "pki"),
    *("gai.conf", "group", "host.conf", "hostname", "hosts", "networks", "nsswitch.conf", "os-release", "passwd"),
    *("protocols", "resolv.conf", "services", "ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "timezone", "xml"),
)
"""Files of /etc without secrets."""
OF_HOME = ("~/.gitconfig", "~/.config/git/config", "~/.config/git/ignore", "~/.config/git/attributes")
"""Settings without which git does not work; its credentials lie elsewhere."""
PROC = ("/proc",)
"""Landlock denies the memory, environment and files of processes outside of the box."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
HOME_SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".docker", ".kube", ".netrc", ".pgpass"),
    *(".git-credentials", ".npmrc", ".pypirc", ".password-store", ".mozilla", ".bash_history"),
)
SECRETS = (
    *("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh", "/run/user", "/run/dbus"),
    *("/run/systemd/private", "/run/docker.sock", "/run/containerd", "/run/podman", "/run/secrets", "/run/credentials"),
    *("/etc/nats", "/etc/nats-server.conf", "/var/lib/nats", "/tmp/nats"),  # noqa: S108 # where NATS has them by itself
)
"""Credentials, and sockets of services that would start a process outside of the box."""


PASSED_ON = ("PATH", "HOME", "TZ", "LANG", "LANGUAGE", "TMPDIR")


def plugin_environment(passed_on: Collection[str] = ()) -> dict[str, str]:
    """Variables that Ductile passes on, too, and the named ones. Our own Python comes first on PATH."""
    names = {*PASSED_ON, *passed_on}
    seen = {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}
    return seen | {"PATH": os.pathsep.join((str(Path(sys.executable).parent), seen.get("PATH", os.defpath)))}


@dataclass(frozen=True, slots=True)
class Box:
    """`environment`: of plugins. Besides its own paths a plugin may read and execute `read`, and change `write`, too.
    Nothing in `closed` is within reach, and nothing in `frozen` can be changed. `apart`: folders that are closed except
    for paths named in them. All paths are real."""

    environment: Mapping[str, str] = field(default_factory=plugin_environment)
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    boundary: Boundary = field(default_factory=lambda: Boundary("none"))
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    closed: tuple[Path, ...] = ()
    apart: tuple[Path, ...] = ()

    def allowed(self, places: Iterable[Path]) -> tuple[str, ...]:
        """Existing places without closed paths; a folder that contains one is replaced by the rest of its content,
        without links, which may lead elsewhere."""
        found = list[Path]()
        for place in map(Path, map(os.path.realpath, places)):
            apart = (folder for folder in self.apart if folder != place and folder.is_relative_to(place))
            found += _open_parts((*self.closed, *apart), place)
        return _outermost(found)


def box_of(settings: PluginSettings) -> Box:
    """Paths in variables that are passed on are in reach. Raises Misconfigured."""
    environment = plugin_environment(settings.environment)
    passed_on = _configured_paths(environment.get(name) for name in settings.environment)
    secrets = (*map(Path, SECRETS), *(Path("~", name) for name in HOME_SECRETS))
    bare = Box(
        environment,
        ProcessLimits(**settings.limits.model_dump()),
        choose_boundary(settings.boundary, settings.run_as),
        closed=_real((*settings.closed, *secrets)),
        apart=_real(settings.apart),
    )
    return replace(
        bare,
        read=bare.allowed((*program_paths(environment), *_real(settings.read))),
        write=bare.allowed((*passed_on, *_real(settings.write))),
        frozen=bare.allowed(_real(settings.folders)),
    )


def program_paths(environment: Mapping[str, str]) -> Iterator[Path]:
    """Paths that programs need: of the system, of the interpreter, and the folders on PATH."""
    yield from map(Path, SYSTEM)
    yield from (Path("/etc", name) for name in ETC)
    yield from (Path(name).expanduser() for name in OF_HOME)
    yield from (Path(sys.prefix), Path(sys.base_prefix))
    yield from (Path(name) for name in environment.get("PATH", "").split(os.pathsep) if name.startswith("/"))


def _configured_paths(values: Iterable[object]) -> Iterator[Path]:
    """Existing paths among the values of a plugin's configuration: the plugin is meant to use them."""
    for value in values:
        if isinstance(value, str) and value.startswith("/") and "\0" not in value:
            path = Path(value)
            if len(path.parts) > 2 and is_there(path):  # `/` and `/api` are seldom meant as folders
                yield path


def _open_parts(closed: Collection[Path], place: Path) -> Iterator[Path]:
    if any(place.is_relative_to(closed_path) for closed_path in closed) or not is_there(place):
        return
    if not any(closed_path.is_relative_to(place) for closed_path in closed):
        yield place
        return
    with contextlib.suppress(OSError):
        for child in sorted(place.iterdir()):
            if not child.is_symlink():
                yield from _open_parts(closed, child)


def _outermost(places: Iterable[Path]) -> tuple[str, ...]:
    """Drops paths within other paths: each costs a call some microseconds."""
    found: list[Path] = []
    for place in sorted(places):
        if not found or not place.is_relative_to(found[-1]):
            found.append(place)
    return tuple(map(str, found))


def _real(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(map(_real_path, paths))


def _real_path(path: Path) -> Path:
    """Raises Misconfigured for the home of an unknown user: a file that is to be closed there would stay open."""
    try:
        return Path(os.path.realpath(path.expanduser()))
    except RuntimeError:
        raise Misconfigured(f"{path}: this machine knows no such home folder: give the path in full") from None


LOOK_S = 1.0

Key = tuple[object, ...]


class KeyedOrder(NamedTuple):
    """An order, and the key of guards that can carry it out: the order and the inodes of its paths. A view hides a
    closed file by its inode, so one that was replaced needs a new view."""

    order: Order
    key: Key


@dataclass(eq=False)
class OrderCache:
    """The order of each plugin; made anew when the plugin changes, and after `LOOK_S`."""

    box: Box
    _known: dict[Path, tuple[float, Key, KeyedOrder]] = field(default_factory=dict)

    def of(self, folder: Path, entrypoint: Path, config: Mapping[str, object]) -> KeyedOrder:
        texts = [value for value in config.values() if isinstance(value, str) and value.startswith("/")]
        now, own = time.monotonic(), (entrypoint, *_inodes((folder, entrypoint, *texts)))
        until, known, ready = self._known.get(folder, (0.0, (), None))
        if ready is None or own != known or now > until:
            order = self._order(folder, entrypoint, config.values())
            closed = order.closed if order.view else ()
            ready = KeyedOrder(order, (order.to_json(), *_inodes((*order.read, *order.write, *closed))))
            self._known[folder] = now + LOOK_S, own, ready
        return ready

    def _order(self, folder: Path, entrypoint: Path, config: Iterable[object]) -> Order:
        box, boundary = self.box, self.box.boundary
        return Order(
            entrypoint=str(entrypoint),
            environment=dict(box.environment),
            # On macOS a process that is forked without exec may not use all of the system.
            python=sys.platform == "linux" and runs_on_our_python(entrypoint, box.environment.get("PATH")),
            limits=box.limits,
            landlock=boundary.files == "landlock",
            view=boundary.files == "view" or boundary.hides,
            read=(*box.read, *box.allowed([folder]), *PROC),
            write=(*box.write, *box.allowed(_configured_paths(config)), *DEVICES),
            frozen=box.frozen,
            closed=tuple(map(str, (*box.closed, *box.apart))),
            user=boundary.user,
        )


def _inodes(paths: Iterable[str | Path]) -> Iterator[tuple[int, int] | None]:
    for path in paths:
        try:
            found = os.stat(path)  # noqa: PTH116 - dozens for each call
        except (OSError, ValueError):
            yield None
        else:
            yield found.st_dev, found.st_ino
