"""Settings of the property tests: the same examples on every machine, unless HYPOTHESIS_PROFILE asks for more."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    max_examples=120,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", parent=settings.get_profile("ci"), derandomize=False, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
