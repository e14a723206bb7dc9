"""Operator's actions from docs/OPERATIONS.md on a booted machine, and runs in progress there."""

import json
import re
from typing import Any

from tests.deploy.systemd_machine import Machine
from tests.kit.pages import ROOT, blocks

PAGE = ROOT / "docs" / "OPERATIONS.md"
AS_ROOT = "cd /etc/agentic\nexport AGENTIC_TOKEN=$(cat operators.token)\n"
OF_THE_INDEX = re.compile(r"/opt/agentic/bin/pip install .*")
OF_THE_CHECKOUT = "/opt/agentic/bin/pip install --quiet --force-reinstall --no-deps --no-index /src/*.whl"
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


def typed(heading: str, *which: int) -> str:
    """The commands for a machine under that heading; of several blocks the given ones, counted from 0."""
    found = [block.text for block in blocks(PAGE) if block.heading == heading and block.mark == "machine"]
    assert found, heading
    return OF_THE_INDEX.sub(OF_THE_CHECKOUT, "".join(found[number] for number in which or range(len(found))))


def page(machine: Machine, heading: str, *which: int) -> str:
    return machine.say(f"{AS_ROOT}{typed(heading, *which)}")


def tools_added(machine: Machine) -> None:
    machine.say(TOOLS)
    ready(machine)


def ready(machine: Machine) -> None:
    machine.say(
        "for _ in $(seq 150); do\n"
        "  curl -sf http://127.0.0.1:8700/readyz && curl -sf http://127.0.0.1:8711/readyz && exit 0; sleep 0.2\n"
        "done; exit 1"
    )


def done(machine: Machine, goal: str) -> None:
    assert "✓ done" in machine.say(f"{AS_ROOT} agentic run '{goal}'")


def under_way(machine: Machine, *, seconds: int = 10) -> None:
    """A run whose tool has begun to write."""
    ready(machine)
    machine.say(
        f"rm -f /srv/diary/page\n{AS_ROOT} agentic wake 'nap {seconds} /srv/diary/page'\n"
        "for _ in $(seq 100); do test -e /srv/diary/page && exit 0; sleep 0.1; done; exit 1"
    )


def written_once(machine: Machine) -> None:
    """Checks that the run in progress ended well and wrote once."""
    ready(machine)
    machine.say(f"{AS_ROOT} agentic show last --watch")
    begun, ended = machine.say("cat /srv/diary/page").splitlines()
    assert begun.split() == [ended.split()[0], "begins"], "once, by the same call"


def runs(machine: Machine) -> list[dict[str, Any]]:
    return list(json.loads(machine.say(f"{AS_ROOT} agentic runs --json"))["runs"])


def comes_to(machine: Machine, status: str, run: str = "last") -> None:
    machine.say(
        f'{AS_ROOT} for _ in $(seq 100); do agentic show {run} --json | grep -qE \'"status": ?"{status}"\' && exit 0; '
        f"sleep 0.2; done; agentic show {run}; exit 1"
    )
