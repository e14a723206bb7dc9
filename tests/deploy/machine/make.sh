#!/bin/sh
# Makes a folder that boots: Debian with systemd, Python and what the program needs, locked by hash; not the program itself.
# tests/deploy/systemd_machine.py boots copies of it. Takes root, debootstrap and two minutes; it stays until it is removed.
set -eu
folder=$1
here=$(dirname "$(readlink -f "$0")")
[ -e "$folder/ready" ] && exit 0
[ "$(id -u)" = 0 ] || { echo "only root can make a machine" >&2; exit 77; }
command -v debootstrap systemd-nspawn > /dev/null \
  || apt-get install --yes -qq --no-install-recommends debootstrap systemd-container > /dev/null
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,python3,python3-venv,openssl,ca-certificates,procps,curl \
  trixie "$folder" > "$folder.log" || { tail "$folder.log" >&2; exit 1; }
install -D -m 0644 "$here/../../../requirements-services.lock" "$folder/src/requirements.lock"
for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
  install -D -m 0644 "$file" "$folder$file"
done
[ -z "${PIP_FIND_LINKS:-}" ] || ! [ -d "$PIP_FIND_LINKS" ] \
  || { mkdir -p "$folder$PIP_FIND_LINKS" && cp -R "$PIP_FIND_LINKS/." "$folder$PIP_FIND_LINKS"; }
chroot "$folder" sh -c 'python3 -m venv /opt/agentic && /opt/agentic/bin/pip install --quiet --require-hashes \
  --only-binary :all: --no-binary nkeys --requirement /src/requirements.lock'
touch "$folder/ready"
