"""Which paths a plugin may reach: what programs need of the system, its own folder, and what an operator has named."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

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
"""Of /etc what says how things are, and nothing that says who may come in."""
OF_HOME = ("~/.gitconfig", "~/.config/git/config", "~/.config/git/ignore", "~/.config/git/attributes")
"""How git works for the user, without which it does not; what it logs in with lies elsewhere."""
PROC = ("/proc",)
"""How the machine is, and the call's own processes, each by its number. What a process outside holds (its memory,
environment, files) landlock keeps from it."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


HOMES = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".docker", ".kube", ".netrc", ".pgpass"),
    *(".git-credentials", ".npmrc", ".pypirc", ".password-store", ".mozilla", ".bash_history"),
)
DOORS = (
    *("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh", "/run/user", "/run/dbus"),
    *("/run/systemd/private", "/run/docker.sock", "/run/containerd", "/run/podman", "/run/secrets", "/run/credentials"),
    *("/etc/nats", "/etc/nats-server.conf", "/var/lib/nats", "/tmp/nats"),  # noqa: S108 # where NATS has them by itself
)
"""What lets somebody in elsewhere, and sockets of those who would start a process outside of the box."""


@dataclass(frozen=True, slots=True)
class Reach:
    """`read` may be read and run, `write` changed too, but never what lies in `closed`, nor changed what lies in
    `frozen`. `apart`: folders closed but for what is named in them. All paths are real ones."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    closed: tuple[Path, ...] = ()
    apart: tuple[Path, ...] = ()

    def allowed(self, places: Iterable[Path]) -> tuple[str, ...]:
        """Those that are there, without what is closed: of a folder that holds it then the other things in it."""
        found = list[Path]()
        for place in map(Path, map(os.path.realpath, places)):
            apart = (folder for folder in self.apart if folder != place and folder.is_relative_to(place))
            found += _without((*self.closed, *apart), [place])
        return outermost(found)


def make_reach(
    *,
    read: Iterable[Path],
    write: Iterable[Path],
    closed: Iterable[Path],
    frozen: Iterable[Path] = (),
    apart: Iterable[Path] = (),
) -> Reach:
    shut, own = (tuple(Path(os.path.realpath(path)) for path in paths) for paths in (closed, apart))
    empty = Reach(closed=shut, apart=own)
    return replace(empty, read=empty.allowed(read), write=empty.allowed(write), frozen=empty.allowed(frozen))


def closed_paths() -> Iterator[Path]:
    yield from map(Path, DOORS)
    yield from (Path("~", name).expanduser() for name in HOMES)


def program_paths(environment: Mapping[str, str]) -> Iterator[Path]:
    """What programs need to run: of the system, and of the interpreter and the folders on PATH."""
    yield from map(Path, SYSTEM)
    yield from (Path("/etc", name) for name in ETC)
    yield from (Path(name).expanduser() for name in OF_HOME)
    yield from (Path(sys.prefix), Path(sys.base_prefix))
    yield from (Path(name) for name in environment.get("PATH", "").split(os.pathsep) if name.startswith("/"))


def configured_paths(values: Iterable[object]) -> Iterator[Path]:
    """The paths among the values that a plugin is configured with: who names one there means it to be used."""
    for value in values:
        if isinstance(value, str) and value.startswith("/") and "\0" not in value:
            path = Path(value)
            if len(path.parts) > 2 and os.path.exists(path):  # `/` and `/api` are seldom meant as folders
                yield path


def _without(closed: Collection[Path], places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        real = Path(os.path.realpath(place))
        if any(real.is_relative_to(shut) for shut in closed):
            continue
        if any(shut.is_relative_to(real) for shut in closed):
            yield from _without(closed, _children(real))
        elif os.path.exists(real):
            yield real


def outermost(places: Iterable[Path]) -> tuple[str, ...]:
    """Without those that lie in another: each costs a call some microseconds."""
    found: list[Path] = []
    for place in sorted(places):
        if not found or not place.is_relative_to(found[-1]):
            found.append(place)
    return tuple(map(str, found))


def _children(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return ()
