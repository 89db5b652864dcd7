"""What goes wrong, as exceptions. Each carries the error number of the C library and its text,
which names the thing."""

import errno as _errno
import os
from typing import Dict, Type


class Error(OSError):
    """An error of pinserve. `errno` is the number, `strerror` the text."""

    def __str__(self) -> str:
        return self.strerror or os.strerror(self.errno or 0)


class DaemonGone(Error):
    """The daemon has ended (EPIPE), or there is none (ENOENT, ECONNREFUSED)."""


class Timeout(Error):
    """No batch within the loader's `timeout` (ETIMEDOUT)."""


class AllLeased(Error):
    """All `depth` batches are still referred to, so that none can come (EBUSY)."""


class BadSample(Error):
    """A sample cannot be decoded (EBADMSG); the text names it."""


class Forked(Error):
    """A loader of another process was used: it was made before fork (EPERM)."""


_by_number: Dict[int, Type[Error]] = {
    _errno.EPIPE: DaemonGone,
    _errno.ETIMEDOUT: Timeout,
    _errno.EBUSY: AllLeased,
    _errno.EBADMSG: BadSample,
}


def from_result(result: int, text: str) -> Error:
    """The exception for a negative result of the C library."""
    kind = _by_number.get(-result, Error)
    if result == -_errno.EPERM and text.startswith("forked"):
        kind = Forked
    return kind(-result, text)
