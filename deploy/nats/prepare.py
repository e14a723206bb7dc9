#!/usr/bin/env python3
"""Prepares a folder for a NATS server: its configuration, a key for each login, certificates, and settings to copy.

    python deploy/nats/prepare.py /etc/agentic-nats --host bus.example.org --executor weekday-executor

Run it with the Python of the program; it needs `openssl`. Run it again to add a login: it keeps existing files, also
keys and certificates. Only the owner of the folder can read keys; the server needs none of `logins/`.
"""

import argparse
import ipaddress
import json
import os
import shutil
import subprocess
from pathlib import Path

import nkeys

from schemas.permissions import SHIPPED, SYSTEM, Login, accounts, inbox_of

HERE = Path(__file__).resolve().parent
SERVER_FILES = ("nats-server.conf", "accounts.conf", "here.conf")
CA_DAYS, SERVER_DAYS = 3650, 825
EXTENSIONS = "basicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName={names}\n"


def main() -> None:
    given = _arguments()
    folder = given.folder.absolute()
    for part in (folder, folder / "logins", folder / "tls"):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    logins = [*SHIPPED, *(Login(name, "executor") for name in given.executor)]
    logins += [Login(name, "publisher") for name in given.publisher]
    keys = {name: _key(folder / "logins" / f"{name}.nk") for name in [*(login.name for login in logins), SYSTEM]}
    _certificates(folder / "tls", given.host)
    if not (folder / "nats-server.conf").exists():
        shutil.copy(HERE / "nats-server.conf", folder)
    (folder / "accounts.conf").write_text(accounts(logins, keys.__getitem__))
    (folder / "here.conf").write_text(_places(folder, given.listen, given.store or folder / "data"), encoding="utf-8")
    for login in logins:
        _settings(folder, login, f"{given.host[0]}:{given.listen.rpartition(':')[2]}")
    if given.group:
        _share_with_group(folder, given.group)
    print(f"nats-server --config {folder / 'nats-server.conf'}")  # noqa: T201 # what to do next


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prepare a folder for a NATS server.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", action="append", help="a name or address that the server is reached by", default=[])
    parser.add_argument("--listen", default="0.0.0.0:4222", metavar="ADDRESS:PORT")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="where the server keeps its data, if not in there")
    parser.add_argument("--group", help="the group of the server's user, where it is another one than yours")
    parser.add_argument("--executor", action="append", metavar="NAME", help="a login for an executor", default=[])
    parser.add_argument("--publisher", action="append", metavar="NAME", help="one more login to wake by", default=[])
    given = parser.parse_args()
    given.host = given.host or ["127.0.0.1", "localhost"]
    return given


def _key(file: Path) -> str:
    """Returns the public key of the file, which is made if it is missing."""
    if not file.exists():
        _write_secret(file, nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    return nkeys.from_seed(bytearray(file.read_bytes().strip())).public_key.decode()


def _write_secret(file: Path, content: bytes) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        written.write(content)


def _certificates(folder: Path, hosts: list[str]) -> None:
    """Makes an authority and the server's certificate for these names. It keeps existing ones, such as yours."""
    os.umask(0o077)
    names = ("ca.pem", "ca-key.pem", "server.pem", "server-key.pem")
    ca, ca_key, server, server_key = (folder / name for name in names)
    if server.exists():
        return
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
    if not ca.exists():
        ca_is = ["-subj", "/CN=Agentic Loop bus", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        _openssl("req", "-x509", *new_key, "-keyout", ca_key, "-out", ca, "-days", str(CA_DAYS), *ca_is)
    request, extensions = folder / "server.csr", folder / "server.ext"
    extensions.write_text(EXTENSIONS.format(names=",".join(map(_alternative_name, hosts))))
    _openssl("req", "-new", *new_key, "-keyout", server_key, "-out", request, "-subj", f"/CN={hosts[0][:64]}")
    signed = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-extfile", extensions, "-days", str(SERVER_DAYS)]
    _openssl("x509", "-req", "-in", request, "-out", server, *signed)
    request.unlink()
    extensions.unlink()


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)  # noqa: S603, S607


def _share_with_group(folder: Path, group: str) -> None:
    """Lets the group read the server's files, and none of the logins."""
    tls = folder / "tls"
    files = [folder / name for name in SERVER_FILES] + [tls / "server.pem", tls / "server-key.pem"]
    for path, mode in [(folder, 0o750), (tls, 0o750), *((file, 0o640) for file in files)]:
        shutil.chown(path, group=group)
        path.chmod(mode)


def _places(folder: Path, listen: str, store: Path) -> str:
    places = {
        "LISTEN": listen,
        "STORE": store,
        "TLS_CERTIFICATE": folder / "tls" / "server.pem",
        "TLS_KEY": folder / "tls" / "server-key.pem",
    }
    return "".join(f"{name} = {json.dumps(str(path), ensure_ascii=False)}\n" for name, path in places.items())


def _settings(folder: Path, login: Login, address: str) -> None:
    """Writes the section `nats:` for that login, as JSON, which is YAML too. The gateway's also requires signed writes:
    any login may publish requests."""
    logging_in = {
        "urls": [f"tls://{address}"],
        "tls_ca": str(folder / "tls" / "ca.pem"),
        "nkey_seed_file": str(folder / "logins" / f"{login.name}.nk"),
        "inbox_prefix": inbox_of(login.name),
    }
    signed = {"require_signed_writes": True} if login.role == "gateway" else {}
    section = json.dumps({"nats": logging_in} | signed, indent=2, ensure_ascii=False)
    (folder / "logins" / f"{login.name}.yaml").write_text(f"{section}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
