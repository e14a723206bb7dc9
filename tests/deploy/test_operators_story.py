"""A year of an operator, by docs/OPERATIONS.md: an upgrade, a small disk that fills, pruning, a backup with a write in
progress, a total loss, and a recovery on an empty machine."""

import pytest

from tests.deploy import systemd_machine as ops
from tests.deploy.systemd_machine import Machine, needs_boot
from tests.deploy.systemd_machine import machine as machine

pytestmark = [needs_boot, pytest.mark.timeout(900)]

A_SMALL_DISK = """
systemctl stop agentic-loop ductile-gateway agentic-nats
rm -r /var/lib/agentic /var/lib/agentic-nats/data
mkdir /var/lib/agentic
mount -t tmpfs -o size=10m,mode=0755 none /var/lib/agentic
for place in agent gateway; do install -d -m 0700 /var/lib/agentic/$place /var/lib/agentic/$place/store; done
chown -R agentic: /var/lib/agentic/agent
chown -R agentic-gateway: /var/lib/agentic/gateway
systemctl start agentic-nats
"""
FILLED = """
for number in $(seq 200); do
  goal=$(head -c 12000 /dev/urandom | od -An -tx1 | tr -d ' \\n')
  code=$(curl -s -o /tmp/said -w '%{http_code}' -H "Authorization: Bearer $AGENTIC_TOKEN" \\
    -H 'Content-Type: application/json' -d "{\\"goal\\": \\"$goal\\"}" http://127.0.0.1:8700/v1/wake)
  [ "$code" = 202 ] || break
done
cat /tmp/said
"""
THE_LAST_BYTE = """
cat /dev/zero > /var/lib/agentic/of-somebody-else || true
[ "$(stat -f -c %a /var/lib/agentic)" = 0 ]
"""
LOST = """
systemctl disable --now agentic-loop ductile-gateway agentic-nats
pkill --signal KILL --uid agentic-gateway || true
umount --lazy /var/lib/agentic
rm -rf /var/lib/agentic* /etc/agentic* /etc/systemd/system/agentic* /etc/sysusers.d/agentic.conf /opt/agentic/plugins
rm /etc/systemd/system/ductile-gateway.service
for user in agentic agentic-gateway agentic-nats; do userdel $user; done
groupdel agentic-settings
useradd --system somebody-else
"""
"""A newly made user has another number, as on another machine. Processes that the gateway left are not ended through
its cgroup: Linux 6.18 also kills processes started in a cgroup later, until it is removed (cgroup.kill)."""


def test_from_an_upgrade_through_a_full_disk_and_the_loss_of_everything(machine: Machine) -> None:
    machine.say(A_SMALL_DISK)
    _, *all_but_the_backup = ops.typed("A new version of one agent").replace("agentic doctor", "").splitlines()
    machine.say(ops.AS_ROOT + "\n".join(all_but_the_backup))
    ops.ready(machine)
    ops.done(machine, "under the new version")
    first = ops.runs(machine)[0]["run_id"]

    ops.page(machine, "Keep", 0)
    kept(machine, "{done_days: 0.00001, escalated_days: 0.00001}")
    assert "Free space" in machine.say(f"{ops.AS_ROOT}{FILLED}") or "make room" in machine.say("cat /tmp/said")
    machine.say(THE_LAST_BYTE)
    ops.page(machine, "A full disk")
    assert first not in {run["run_id"] for run in ops.runs(machine)}
    kept(machine, "{done_days: 90}")

    ops.under_way(machine, seconds=40)
    ops.page(machine, "Back up and restore", 0, 1)
    before = {run["run_id"] for run in ops.runs(machine)}
    machine.say(LOST)
    said = machine.say("umask 022\n" + ops.typed("Everything is lost"))
    ops.ready(machine)
    assert "in doubt" in said or "under way" in said
    assert {run["run_id"] for run in ops.runs(machine)} == before
    ops.comes_to(machine, "escalated")
    machine.say("rm /srv/diary/page")
    ops.page(machine, "A write in doubt")
    ops.comes_to(machine, "done")
    ops.written_once(machine)
    ops.done(machine, "life goes on")


def kept(machine: Machine, rules: str) -> None:
    machine.say(
        f"sed -i 's/keep_runs:.*/keep_runs: {rules}/' /etc/agentic/agentic.yaml; systemctl restart agentic-loop"
    )
    ops.ready(machine)
