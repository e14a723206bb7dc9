"""Examples of docs/DUCTILE.md with secrets for tests; and Ductile's file_handler, or a stand-in for it."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "deploy" / "ductile"
GUIDE = ROOT / "docs" / "DUCTILE.md"
SECRETS = {
    "DUCTILE_GATEWAY_TOKEN": "a-gateway-token-for-tests",
    "DUCTILE_RELAY_SECRET": "a-relay-secret-for-tests",
    "AGENTIC_WAKE_TOKEN": "a-wake-token-for-tests-0123",
    "AGENTIC_RUN_TOKEN": "a-run-token-for-tests-01234",
    "AGENTIC_TOKEN": "a-token-of-people-for-tests",
    "GITHUB_WEBHOOK_SECRET": "a-secret-shared-with-github",
    "CMS_WEBHOOK_SECRET": "whsec_YS1zZWNyZXQtb2YtYS1jbXMtZm9yLXRlc3Rz",
}
"""By the names of the guide."""
SETTINGS, PASSING_ON, PEER, RELAY = 0, 4, 5, 6
"""Positions of YAML blocks: the settings of both services, a pipeline, a mapping of answers, a tool called by
events."""


def shown(number: int) -> Any:
    filled = re.sub(r"\$\{(\w+)\}", lambda name: SECRETS.get(name[1], name[0]), GUIDE.read_text(encoding="utf-8"))
    return yaml.safe_load(re.findall(r"```yaml\n(.*?)```", filled, re.DOTALL)[number])


def shown_peer() -> Any:
    return shown(PEER)["gateway"]["ingress"]["peers"]["ductile"]


FILE_HANDLER = """#!/usr/bin/env python3
import json, pathlib, sys
payload = json.load(sys.stdin)["event"]["payload"]
pathlib.Path(payload["output_path"]).write_text(payload["content"])
json.dump({"status": "ok", "result": "written"}, sys.stdout)
"""
FILE_HANDLER_MANIFEST = {
    "manifest_spec": "ductile.plugin",
    "manifest_version": 1,
    "name": "file_handler",
    "version": "0.0.1",
    "protocol": 2,
    "entrypoint": "run.py",
    "commands": [{"name": "handle", "type": "write"}],
}


def add_file_handler(folder: Path) -> None:
    """Copies the plugin from DUCTILE_PLUGINS, or writes a stand-in."""
    if "DUCTILE_PLUGINS" in os.environ:
        shutil.copytree(Path(os.environ["DUCTILE_PLUGINS"]) / "file_handler", folder)
        return
    folder.mkdir(mode=0o755, parents=True)
    (folder / "manifest.yaml").write_text(yaml.safe_dump(FILE_HANDLER_MANIFEST))
    (folder / "run.py").write_text(FILE_HANDLER)
    (folder / "run.py").chmod(0o755)
