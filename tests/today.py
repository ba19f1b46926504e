"""The day of the year that chooses the seeds of the gate, as in tests/today.sh."""
import os
import time

DAY = int(os.environ.get("CATTN_TEST_DAY", time.gmtime().tm_yday - 1))
