"""The end of a command whose reader has gone, as in `kubestow completion bash | head -1`."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Final, TextIO

PIPE_CLOSED: Final = 128 + signal.SIGPIPE
"""The exit code that a shell shows for a program that SIGPIPE has ended."""


def until_closed(command: Callable[[], int]) -> int:
    """Run a command and flush its output; return PIPE_CLOSED without a traceback if the reader of the output has gone.

    Python ignores SIGPIPE, because a daemon must survive a closed socket. An error of a socket is raised.
    """
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        closed = [stream for stream in (sys.stdout, sys.stderr) if _is_closed(stream)]
        if not closed:
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in closed:
            os.dup2(nowhere, stream.fileno())  # the interpreter flushes once more at its exit
        os.close(nowhere)
        return PIPE_CLOSED


def _is_closed(stream: TextIO) -> bool:
    """Return whether nothing reads the other end of the pipe."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (io.UnsupportedOperation, ValueError):  # not a file
        return False
