"""What a gateway that starts has loaded: what its calls need, and nothing that takes long beside it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LATER = {"fastapi", "starlette", "uvicorn", "jinja2", "typer", "rich", "ductile_gateway.ingress.http"}


def test_a_gateway_has_not_loaded_what_takes_events_from_outside_before_its_calls_go_on() -> None:
    probe = (
        "import sys; from ductile_gateway.__main__ import _loaded; _loaded(['serve']); import ductile_gateway.app;"
        " print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ductile_gateway.calls.relay" in loaded
    assert loaded & LATER == set()


def test_the_gateway_tells_its_version() -> None:
    command = (sys.executable, "-m", "ductile_gateway", "--version")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ductile-gateway ")
