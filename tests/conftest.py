"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
# The same examples each time, so that a run fails or passes for what was changed. To look for
# new ones: HYPOTHESIS_PROFILE=search pytest ...
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, max_examples=60, suppress_health_check=_SLOW
)
settings.register_profile("search", deadline=None, max_examples=500, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
