"""A daemon of this process's own, as `pinserved run` starts it: no root, no configuration."""

import atexit
import os
import shutil
import subprocess
import threading
import weakref
from typing import Any, Optional

from ._errors import DaemonGone

# Its command tells where the socket is and waits for the end of its input, which comes when this
# process closes it or ends, however it ends.
_COMMAND = ("sh", "-c", 'printf "%s\\n" "$PINSERVE_SOCKET"; exec cat >/dev/null')
_PLACES = "/usr/local/bin:/usr/bin"
_PATIENCE = 10  # seconds for an orderly end

_children: "weakref.WeakSet[PrivateDaemon]" = weakref.WeakSet()


def _program() -> str:
    named = os.environ.get("PINSERVED")
    found = named or shutil.which("pinserved") or shutil.which("pinserved", path=_PLACES)
    if not found:
        raise DaemonGone(2, "no program pinserved on PATH; install pinserve or set PINSERVED")
    return found


class PrivateDaemon:
    """A private daemon, which ends with `close()` or with this process, also when that is killed.

    `settings` are the daemon's, like `"pool.max=2GiB"`; `socket` is the path of its socket, which
    other processes of the same user may use. Its warnings go to stderr.
    """

    def __init__(self, *settings: str):
        program = _program()
        sets = [part for setting in ("log.level=warning", *settings)
                for part in ("--set", setting)]
        # A session of its own: Ctrl-C on the terminal is for this process only.
        try:
            self._process = subprocess.Popen(
                [program, "run", *sets, "--", *_COMMAND], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            raise DaemonGone(error.errno or 0, f"{program}: {error.strerror}") from None
        assert self._process.stdin and self._process.stdout
        self._owner = os.getpid()
        _children.add(self)
        with self._process.stdout as output:
            self.socket = os.fsdecode(output.readline().rstrip(b"\n"))
        if not self.socket:
            self._process.stdin.close()
            raise DaemonGone(32, f"{program} run ended with status {self._process.wait()}")

    def __repr__(self) -> str:
        return f"pinclient.PrivateDaemon at {self.socket}"

    def is_alive(self) -> bool:
        """Whether it runs, and is this process's."""
        return self._owner == os.getpid() and self._process.poll() is None

    def close(self) -> None:
        """Ends it; jobs that are open end with DaemonGone."""
        assert self._process.stdin
        if self._owner != os.getpid() or self._process.stdin.closed:
            return
        self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "PrivateDaemon":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _forget(self) -> None:
        """In a forked child, whose copy of the pipe would keep the daemon up."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.returncode = 0


def _after_fork() -> None:
    global _shared, _lock
    _lock = threading.Lock()
    for child in list(_children):
        child._forget()
    _shared = None


_shared: Optional[PrivateDaemon] = None
_lock = threading.Lock()
os.register_at_fork(after_in_child=_after_fork)


def shared() -> PrivateDaemon:
    """The one that all loaders of this process with `daemon="private"` use."""
    global _shared
    with _lock:
        if _shared is None or not _shared.is_alive():
            _shared = PrivateDaemon()
            atexit.register(_shared.close)
        return _shared
