"""docs/OPERATIONS.md, done on a machine that boots: it is typed as it stands there, and what it promises holds.

`make test-systemd` makes such a machine. Each test leaves it as it was found: services up, nothing under way.
"""

import re
from collections.abc import Iterator

import pytest

from tests.deploy.booted import Machine, booted, needs_boot
from tests.kit.pages import ROOT, blocks

pytestmark = [needs_boot, pytest.mark.timeout(600)]

PAGE = ROOT / "docs" / "OPERATIONS.md"
AS_ROOT = "export AGENTIC_TOKEN=$(cat /etc/agentic/operators.token)\n"
OF_THE_INDEX = "/opt/agentic/bin/pip install 'agentic-loop-nats[dev-server,openai,z3]'"
OF_THE_CHECKOUT = "/opt/agentic/bin/pip install --quiet --no-deps --no-index /src/*.whl"
TOOLS = """
install -m 0640 -g agentic /src/machine/script.yaml /etc/agentic/script.yaml
install -d -m 0777 /srv/diary
cp -R /src/machine/tools /srv/tools
sed -i 's|folders: .*|folders: [/opt/agentic/plugins, /srv/tools]\\n    write: [/srv/diary]|' /etc/agentic/agentic.yaml
sed -i 's|provider: scripted.*|provider: scripted\\n    script: /etc/agentic/script.yaml|' /etc/agentic/agentic.yaml
install -d /etc/systemd/system/ductile-gateway.service.d
printf '[Service]\\nReadWritePaths=/srv/diary\\n' > /etc/systemd/system/ductile-gateway.service.d/tools.conf
systemctl daemon-reload
systemctl restart ductile-gateway agentic-loop
"""


def typed(heading: str) -> str:
    """What stands under that heading for a machine."""
    found = [block.text for block in blocks(PAGE) if block.heading == heading and block.mark == "machine"]
    assert found, heading
    return "".join(found).replace(OF_THE_INDEX, OF_THE_CHECKOUT)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with booted(tmp_path_factory.mktemp("machine")) as machine:
        yield machine


@pytest.fixture(scope="module")
def machine(bare: Machine) -> Machine:
    """Installed as the page says, with two tools more and a script that uses them."""
    assert "✓ done" in bare.say(typed("Under systemd"))
    bare.say(TOOLS)
    ready(bare)
    return bare


def ready(machine: Machine) -> None:
    machine.say("for _ in $(seq 100); do curl -sf http://127.0.0.1:8700/readyz && exit 0; sleep 0.2; done; exit 1")


def done(machine: Machine, goal: str, meanwhile: str = "sleep 2") -> str:
    """What is done while a run is under way; returns what the run said."""
    said = machine.say(
        f"{AS_ROOT} agentic run '{goal}' > /tmp/run.out 2>&1 & sleep 2\n{meanwhile}\nwait; cat /tmp/run.out"
    )
    assert "✓ done" in said
    return said


def test_a_plugin_reaches_nothing_of_the_services(machine: Machine) -> None:
    said = machine.say(f"{AS_ROOT} agentic run --watch snoop")
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
    machine.say("rm -f /srv/diary/page")
    done(machine, "nap 6 /srv/diary/page", blow)
    begun, ended = machine.say("cat /srv/diary/page").splitlines()
    assert begun.split() == [ended.split()[0], "begins"], "once, by the same call"
    ready(machine)


def test_a_service_whose_settings_are_wrong_waits_for_a_person(machine: Machine) -> None:
    machine.say("cp -p /etc/agentic/agentic.yaml /root/kept; echo 'agnet: {}' >> /etc/agentic/agentic.yaml")
    machine.run("systemctl restart agentic-loop; sleep 3")
    shown = machine.run("systemctl show agentic-loop --property=ActiveState,NRestarts,ExecMainStatus").stdout
    assert {"ActiveState=failed", "ExecMainStatus=78"} <= set(shown.split())
    assert "agnet" in machine.say("journalctl --unit agentic-loop --output cat --lines 5")
    machine.say("cp -p /root/kept /etc/agentic/agentic.yaml; systemctl restart agentic-loop")
    ready(machine)
