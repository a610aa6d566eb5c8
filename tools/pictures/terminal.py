"""Record a command in a pseudo-terminal and draw its output as an SVG."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

_COLUMNS: Final = 112


def recorded(command: Sequence[str], folder: Path) -> str:
    """Run the command in the folder and return everything that it writes to its terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 200, _COLUMNS, 0, 0))
    environment = os.environ | {"COLUMNS": str(_COLUMNS), "TERM": "xterm-256color"}
    with subprocess.Popen(  # noqa: S603 (a command of ours)
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ):
        os.close(theirs)
        chunks = []
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not chunk:
                break
            chunks.append(chunk)
    os.close(ours)
    return b"".join(chunks).decode()


def drawn(sessions: Sequence[tuple[str, str]], title: str) -> str:
    """Return an SVG with each command and its output. Lines that a progress bar overwrote are omitted."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for command, output in sessions:
        console.print(Text(f"$ {command}", style="bold"))
        for line in output.replace("\r\n", "\n").split("\n"):
            shown = Text.from_ansi(line.rpartition("\r")[2])
            if shown.plain.strip() and not shown.plain.startswith(("reading", "scheduling")):
                console.print(shown, no_wrap=True, crop=True)
        console.print()
    text = console.export_svg(title=title, theme=MONOKAI)
    return re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)  # fonts from another site
