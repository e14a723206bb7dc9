"""docs/OPERATIONS.md on a machine that boots: its commands are typed as they stand there, and its promises hold.

`make test-systemd` makes such a machine. Each test leaves the services up and nothing in progress.
"""

import json
import re

import pytest

from tests.deploy import systemd_machine as ops
from tests.deploy.systemd_machine import Machine, needs_boot
from tests.deploy.systemd_machine import machine as machine

pytestmark = [needs_boot, pytest.mark.timeout(600)]

NOT_JSON = """
import asyncio, json
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
async def main():
    publisher = NatsSettings(**json.load(open("/etc/agentic-nats/logins/publisher.yaml"))["nats"])
    async with connect(publisher) as link:
        await link.publish("agentic.start", b"no JSON", msg_id="", headers={})
asyncio.run(main())
"""


def answers(machine: Machine, token: str, call: str) -> str:
    asked = f"curl -s -o /dev/null -w '%{{http_code}}' -H 'Authorization: Bearer {token}' http://127.0.0.1:8700{call}"
    return machine.say(asked).strip()


def test_a_plugin_reaches_nothing_of_the_services(machine: Machine) -> None:
    said = machine.say(f"{ops.AS_ROOT} agentic run --watch snoop")
    assert re.search(r"open doors: *$", said, re.MULTILINE), said


@pytest.mark.parametrize(
    "blow",
    [
        "systemctl restart ductile-gateway",
        "systemctl kill --signal KILL --kill-whom main ductile-gateway",
        "systemctl kill --signal KILL --kill-whom main agentic-loop",
        "systemctl restart agentic-nats",
    ],
)
def test_a_write_under_way_outlives_whatever_befalls_a_service(machine: Machine, blow: str) -> None:
    ops.under_way(machine)
    machine.say(blow)
    ops.written_once(machine)


def test_a_service_whose_settings_are_wrong_waits_for_a_person(machine: Machine) -> None:
    machine.say("cp -p /etc/agentic/agentic.yaml /root/kept; echo 'agnet: {}' >> /etc/agentic/agentic.yaml")
    machine.run("systemctl restart agentic-loop; sleep 3")
    shown = machine.run("systemctl show agentic-loop --property=ActiveState,NRestarts,ExecMainStatus").stdout
    assert {"ActiveState=failed", "ExecMainStatus=78"} <= set(shown.split())
    assert "agnet" in machine.say("journalctl --unit agentic-loop --output cat --lines 5")
    machine.say("cp -p /root/kept /etc/agentic/agentic.yaml; systemctl restart agentic-loop")
    ops.ready(machine)


def test_credentials_are_changed_while_the_services_run(machine: Machine) -> None:
    old = machine.say("cat /etc/agentic/operators.token").strip()
    ops.page(machine, "Secure")
    ops.ready(machine)
    dashboards = machine.say("cat /etc/agentic/dashboards.token").strip()
    assert [answers(machine, token, "/v1/runs") for token in (old, dashboards)] == ["401", "200"]
    assert answers(machine, dashboards, "/v1/stop-all -X POST") == "403"
    ops.done(machine, "with new keys")


def test_it_is_watched_and_says_that_all_is_well(machine: Machine) -> None:
    ops.ready(machine)
    said = ops.page(machine, "Watch")
    assert '"ready":true' in said
    assert "✗" not in said


def test_a_store_goes_back_to_a_backup_and_nothing_of_it_is_roots(machine: Machine) -> None:
    ops.done(machine, "before")
    ops.page(machine, "Back up and restore", 0, 1)
    ops.done(machine, "after")
    said = ops.page(machine, "Back up and restore", 2)
    assert "began after the backup" in said
    ops.ready(machine)
    assert ops.runs(machine)[0]["goal"] == "before"
    assert machine.say("find /var/lib/agentic/*/ -user root -not -path '*/before*'") == ""
    machine.say("rm -r /var/lib/agentic/*/store.before")
    ops.done(machine, "again")


def test_a_backup_is_made_each_night_from_which_the_store_comes_back(machine: Machine) -> None:
    ops.done(machine, "backed up by a timer")
    said = ops.page(machine, "Each night")
    assert "agentic-backup.timer" in said
    assert machine.holds("systemctl is-enabled agentic-backup.timer")
    machine.say("systemctl stop agentic-loop ductile-gateway; systemctl start agentic-backup")
    noted = machine.say("journalctl --sync; journalctl --unit agentic-backup --output cat")
    assert noted.count("is in /var/backups/agentic/agentic-") == 2
    assert "! without" not in noted
    assert machine.say("find /var/lib/agentic/*/ -user root") == ""
    ops.page(machine, "Back up and restore", 2)
    ops.ready(machine)
    assert ops.runs(machine)[0]["goal"] == "backed up by a timer"
    machine.say("rm -r /var/lib/agentic/*/store.before; systemctl disable --now agentic-backup.timer")


def test_a_new_version_is_installed_with_a_write_under_way(machine: Machine) -> None:
    ops.under_way(machine)
    assert "✗" not in ops.page(machine, "A new version of one agent")
    ops.written_once(machine)


def test_a_drained_agent_is_started_again(machine: Machine) -> None:
    ops.page(machine, "Draining one agent")
    ops.ready(machine)
    ops.done(machine, "after the drain")


def test_runs_move_to_a_store_that_several_share_and_back(machine: Machine) -> None:
    ops.done(machine, "moves")
    before = [run["run_id"] for run in ops.runs(machine)]
    ops.page(machine, "From one agent to several, and back", 0)
    ops.ready(machine)
    assert [run["run_id"] for run in ops.runs(machine)] == before
    ops.done(machine, "in the stream")
    ops.page(machine, "From one agent to several, and back", 1)
    ops.ready(machine)
    assert [run["run_id"] for run in ops.runs(machine)][1:] == before
    ops.done(machine, "back again")


def test_why_says_of_a_run_that_stands_still_who_has_to_be_started(machine: Machine) -> None:
    machine.say(f"systemctl stop ductile-gateway\n{ops.AS_ROOT} agentic wake stands; sleep 3")
    said = ops.page(machine, "A run that stands still")
    assert "ductile-gateway does not answer" in said
    machine.say("systemctl start ductile-gateway")
    ops.comes_to(machine, "done")


def test_a_dead_letter_is_looked_at_and_sent_again(machine: Machine) -> None:
    machine.say(f"python3 - <<'END'\n{NOT_JSON}\nEND")
    first = dead_letter(machine)
    again = ops.typed("Dead letters").replace("retry 1", f"retry {first}")
    assert "was sent again" in machine.say(f"{ops.AS_ROOT}{again}")
    machine.say(f"{ops.AS_ROOT} agentic dlq drop {dead_letter(machine)}")


def dead_letter(machine: Machine) -> int:
    machine.say(
        f"{ops.AS_ROOT} for _ in $(seq 60); do agentic dlq ls | grep agentic.start && exit 0; sleep 0.5; done; exit 1"
    )
    [letter] = json.loads(machine.say(f"{ops.AS_ROOT} agentic dlq ls --json"))["letters"]
    return int(letter["id"])


def test_a_bus_that_was_lost_is_made_anew_and_a_write_under_way_is_not_repeated(machine: Machine) -> None:
    ops.under_way(machine)
    machine.say("systemctl stop agentic-nats; rm -r /var/lib/agentic-nats/data")
    assert "✗" not in ops.page(machine, "The bus is lost")
    ops.written_once(machine)


def test_a_paper_trail_is_written_anew(machine: Machine) -> None:
    ops.done(machine, "on paper")
    plan = f"/var/lib/agentic/agent/workspaces/{ops.runs(machine)[0]['run_id']}/plan.md"
    shown = f"{ops.AS_ROOT} agentic cat last plan.md"
    machine.say(shown)
    machine.say(f"echo changed >> {plan}")
    assert "✗ plan.md" in machine.run(f"{ops.AS_ROOT} agentic verify last").stdout
    machine.say(f"rm {plan}")
    assert "✗" not in machine.say(shown) + ops.page(machine, "Replay")
    assert machine.say("find /var/lib/agentic/agent/workspaces -user root") == ""


def test_a_run_leaves_as_a_file_that_proves_itself(machine: Machine) -> None:
    ops.done(machine, "to be shown")
    assert "is as it was written" in ops.page(machine, "One run as a file")


def test_everything_is_stopped_and_goes_on(machine: Machine) -> None:
    *stop, go_on = ops.typed("Stopping everything").splitlines()
    machine.say(ops.AS_ROOT + "\n".join(stop))
    assert "stopped" in machine.run(f"{ops.AS_ROOT} agentic run 'is refused'").stdout
    machine.say(f"{ops.AS_ROOT}{go_on}")
    ops.done(machine, "after all")
