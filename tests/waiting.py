"""How the Python tests wait: for a state that can be observed, never for a time."""
import time

import pytest

LIMIT_S = 300  # for everything that a test waits for: far more than a busy machine needs, so that only a hang reaches it


def wait_until(condition, what="the condition"):
    """Call condition() until it returns something true, and return that. Fails the test, naming `what`, after LIMIT_S."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {LIMIT_S} s for {what}")
        time.sleep(0.01)
    return found
