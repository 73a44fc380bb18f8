"""How much is tested: with FRAUD_HYPOTHESIS=thorough a night's worth.

Without it, property tests try tens to hundreds of examples, and tests marked `only_thorough` are skipped.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

THOROUGH = os.environ.get("FRAUD_HYPOTHESIS") == "thorough"
only_thorough = pytest.mark.skipif(not THOROUGH, reason="takes minutes: FRAUD_HYPOTHESIS=thorough runs it")

settings.register_profile(
    # no test depends on time: machines differ, and the first call of a kernel may compile it
    "project",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("project")


def examples(moderate: int, thorough: int = 10_000) -> settings:
    """Settings of one property test.

    Args:
        moderate: examples in an everyday run.
        thorough: examples with FRAUD_HYPOTHESIS=thorough.
    """
    return settings(max_examples=thorough if THOROUGH else moderate)
