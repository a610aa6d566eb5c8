"""The end of a command whose output cannot be written, as in `kubestow completion bash | head -1`."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Final, TextIO

PIPE_CLOSED: Final = 128 + signal.SIGPIPE
"""The exit code that a shell shows for a program that SIGPIPE has ended."""

NOT_WRITTEN: Final = os.EX_IOERR
"""The exit code after output that the device refused."""
_REFUSED: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def until_closed(command: Callable[[], int]) -> int:
    """Run a command and flush its output; return PIPE_CLOSED without a traceback if the reader of the output has gone.

    Python ignores SIGPIPE, because a daemon must survive a closed socket. An error of a socket is raised. If the device
    refuses the output, as a full disk does, the result is NOT_WRITTEN. A stream that the shell has closed takes no output.
    """
    _open_closed()
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        closed = [stream for stream in (sys.stdout, sys.stderr) if _is_closed(stream)]
        if not closed:
            raise
        _discard(closed)
        return PIPE_CLOSED
    except OSError as error:
        if error.errno not in _REFUSED or error.filename is not None:  # an error of another file
            raise
        _discard([sys.stdout])
        print(f"kubestow: the output cannot be written: {error.strerror}", file=sys.stderr)
        return NOT_WRITTEN


def _open_closed() -> None:
    """Open the null device in place of closed streams: files and sockets would get their numbers otherwise."""
    if sys.stdout is not None and sys.stderr is not None:
        return
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest free number
        os.set_inheritable(nowhere, True)
    os.close(nowhere)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 (until the process ends)


def _discard(streams: Iterable[TextIO]) -> None:
    """Redirect streams to the null device, because the interpreter flushes once more at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _is_closed(stream: TextIO) -> bool:
    """Return whether nothing reads the other end of the pipe."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (io.UnsupportedOperation, ValueError):  # not a file
        return False
