"""Holds the program chunkllama_held at a point (tests/e2e/hold.c), so that a test can look at what it does meanwhile."""
import contextlib
import os

from waiting import wait_until


class Hold:
    """`env` is for the program's environment. `with hold("step"):` begins once a thread waits at that point, and lets it go at the
    end; with reached=False it begins at once, as it must for the points of the clock, at which no thread waits."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {**os.environ, "CHUNKLLAMA_HOLD": str(folder)}

    @contextlib.contextmanager
    def __call__(self, point, reached=True):
        file = self.folder / point
        self.held(point).unlink(missing_ok=True)
        file.touch()
        try:
            if reached:
                self.wait(point)
            yield
        finally:
            file.unlink()

    def held(self, point):
        return self.folder / f"{point}.held"

    def next(self, point):
        """Let the thread that waits at the point go, until one comes to it again."""
        self.held(point).unlink()
        self.wait(point)

    def wait(self, point):
        """Until a thread waits at the point."""
        wait_until(self.held(point).exists, f"a thread to come to {point}")
