"""`python -m tests.fuzz.drive TARGET SECONDS` runs libFuzzer on one target and adds findings to the seeds."""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["agent_service", "ductile_gateway", "groundwork", "schemas"]):
    from tests.fuzz.targets import TARGETS
    from tests.fuzz.test_seeds import SEEDS, seeds

SLOW_S, LONGEST, MEMORY_MB = 5, 20_000, 2048
"""An input that takes that many seconds or that much memory is a finding too."""


def main(target: str, seconds: str) -> None:
    """Ends the process, with 0 if nothing was found."""
    kept = SEEDS / target
    kept.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as found:
        for number, seed in enumerate(seeds(target)):
            Path(found, f"seed-{number}").write_bytes(seed)
        bounds = (
            f"-max_total_time={seconds}",
            f"-timeout={SLOW_S}",
            f"-max_len={LONGEST}",
            f"-rss_limit_mb={MEMORY_MB}",
        )
        told = (f"-artifact_prefix={kept}/found-", "-print_final_stats=1", "-verbosity=0")
        atheris.Setup([target, *bounds, *told, found], TARGETS[target])
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
