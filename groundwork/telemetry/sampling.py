"""Which traces are kept: OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG, decided by the lower 64 bits of the trace id,
as the SDK does, so that all services decide alike."""

import os
from collections.abc import Callable, Mapping

Keeps = Callable[[str], bool]
"""Whether the trace with this id (32 hex digits) is kept."""

_SHARES = {"always_on": 1.0, "always_off": 0.0}


def sampler(environ: Mapping[str, str] = os.environ) -> Keeps:
    """By the environment; what it does not say, or cannot be read, keeps every trace."""
    name = environ.get("OTEL_TRACES_SAMPLER", "always_on").strip().lower().removeprefix("parentbased_")
    share = _SHARES.get(name, 1.0) if name != "traceidratio" else _share(environ.get("OTEL_TRACES_SAMPLER_ARG", ""))
    bound = round(share * 2**64)
    return lambda trace_id: int(trace_id[16:], 16) < bound


def _share(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 1.0
