"""Paths that a plugin may reach: those that programs need, its own folder, and those that the operator allows."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Reach:
    """`read` may be read and executed, and `write` changed, too. Nothing in `closed` is within reach, and nothing in
    `frozen` can be changed. `apart`: folders that are closed except for paths named in them. All paths are real."""

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
            found += _open_parts((*self.closed, *apart), [place])
        return outermost(found)


def closed_paths() -> Iterator[Path]:
    yield from map(Path, SECRETS)
    yield from (Path("~", name) for name in HOME_SECRETS)


def program_paths(environment: Mapping[str, str]) -> Iterator[Path]:
    """Paths that programs need: of the system, of the interpreter, and the folders on PATH."""
    yield from map(Path, SYSTEM)
    yield from (Path("/etc", name) for name in ETC)
    yield from (Path(name).expanduser() for name in OF_HOME)
    yield from (Path(sys.prefix), Path(sys.base_prefix))
    yield from (Path(name) for name in environment.get("PATH", "").split(os.pathsep) if name.startswith("/"))


def configured_paths(values: Iterable[object]) -> Iterator[Path]:
    """Existing paths among the values of a plugin's configuration: the plugin is meant to use them."""
    for value in values:
        if isinstance(value, str) and value.startswith("/") and "\0" not in value:
            path = Path(value)
            if len(path.parts) > 2 and os.path.exists(path):  # `/` and `/api` are seldom meant as folders
                yield path


def _open_parts(closed: Collection[Path], places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        real = Path(os.path.realpath(place))
        if any(real.is_relative_to(closed_path) for closed_path in closed):
            continue
        if any(closed_path.is_relative_to(real) for closed_path in closed):
            yield from _open_parts(closed, _children(real))
        elif os.path.exists(real):
            yield real


def outermost(places: Iterable[Path]) -> tuple[str, ...]:
    """Drops paths within other paths: each costs a call some microseconds."""
    found: list[Path] = []
    for place in sorted(places):
        if not found or not place.is_relative_to(found[-1]):
            found.append(place)
    return tuple(map(str, found))


def _children(folder: Path) -> Iterable[Path]:
    try:
        return sorted(child for child in folder.iterdir() if not child.is_symlink())
    except OSError:
        return ()
