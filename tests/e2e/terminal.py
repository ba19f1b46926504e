"""Runs a program on a pseudo-terminal: what it shows can be waited for, and keys can be typed."""
import fcntl
import os
import pty
import select
import signal
import struct
import termios

from waiting import LIMIT_S

INTERRUPT, STOP, END, UP, LEFT, HOME, DELETE = b"\x03", b"\x1a", b"\x04", b"\x1b[A", b"\x1b[D", b"\x1b[H", b"\x1b[3~"


def paste(text):
    """What a terminal sends for a pasted text: it writes line ends as CR."""
    return b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~"


class Terminal:
    """A program with its own terminal. What it shows is in `shown`, of which what read_until has passed is no longer looked at."""

    def __init__(self, args, env=None):
        self.shown, self.seen = b"", 0
        self.process, self.fd = pty.fork()
        if self.process == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests that run in the background ignore interrupts
            os.execvpe(args[0], list(map(str, args)), env or os.environ)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        os.close(self.fd)

    def _read(self):
        """Read what is there; False: the program has closed the terminal."""
        try:
            self.shown += os.read(self.fd, 65536)
        except OSError:
            return False
        return True

    def send(self, keys):
        """Type keys, bytes or text, as fast as the program's terminal takes them."""
        keys = keys.encode() if isinstance(keys, str) else keys
        while keys:
            readable, writable, _ = select.select([self.fd], [self.fd], [], LIMIT_S)
            assert readable or writable, "the terminal takes no more input"
            if readable:
                self._read()
            if writable:
                keys = keys[os.write(self.fd, keys[:1024]):]

    def read_until(self, end):
        """What was shown since the last call, up to and with `end`."""
        end = end.encode() if isinstance(end, str) else end
        while end not in self.shown[self.seen:]:
            assert select.select([self.fd], [], [], LIMIT_S)[0] and self._read(), (end, self.shown[self.seen:][-2000:])
        stop = self.shown.index(end, self.seen) + len(end)
        text, self.seen = self.shown[self.seen:stop], stop
        return text

    def wait(self):
        """The exit status of the program, as of os.waitpid, which reads all that it shows."""
        while self._read():
            pass
        process, self.process = self.process, None
        return os.waitpid(process, 0)[1]

    def echoes(self):
        """Whether the terminal shows what is typed and gives it out by lines, as a shell's child finds it."""
        flags = termios.tcgetattr(self.fd)[3]
        return bool(flags & termios.ECHO and flags & termios.ICANON)
