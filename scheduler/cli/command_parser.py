"""An argparse parser that suggests the flag or command that was meant, and durations.

argparse's own error line stays as it is; the suggestion follows it.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

_INVALID_CHOICE: Final = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"^unrecognized arguments: (?P<given>.*)$", re.DOTALL)
_INSTEAD: Final = {"--scheduler-name": "set profiles[].schedulerName in the file of --config instead"}
"""Unknown flags of commands with --config, and what to do instead."""


class CommandParser(argparse.ArgumentParser):
    """Accept no abbreviations, and print a short usage line. `commands` names the parsers below this one."""

    def __init__(self, *args: object, usage_exit_code: int = 2, **named: object) -> None:
        defaults = {"allow_abbrev": False, "formatter_class": _Formatter}
        super().__init__(*args, **(defaults | named))  # type: ignore[arg-type]
        self.usage_exit_code = usage_exit_code
        self.commands: Mapping[str, CommandParser] = {}
        self._given: Sequence[str] = ()

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Remember the command line: the suggestion for an unknown flag depends on the command."""
        self._given = tuple(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the usage, argparse's message and what was probably meant; exit with the code of the command."""
        self.print_usage(sys.stderr)
        code = self._command().usage_exit_code
        self.exit(code, f"{self.prog}: error: {message}{self._suggestion(message)}\n")

    def _suggestion(self, message: str) -> str:
        if choice := _INVALID_CHOICE.search(message):
            return _meant(choice["given"], re.findall(r"[\w.:/-]+", choice["known"]))
        if unknown := _UNKNOWN.match(message):
            for word in unknown["given"].split():
                if word.startswith("-") and (found := self._flag_suggestion(word)):
                    return found
        return ""

    def _flag_suggestion(self, word: str) -> str:
        """Return a flag of the command that is similar, or the right place for one that stands before the command."""
        parser = self._command()
        given = word.partition("=")[0]
        if given in parser.flags():
            return f"; flags follow the command: {parser.prog} {given}"
        if given in _INSTEAD and "--config" in parser.flags():
            return f"; {_INSTEAD[given]}"
        return _meant("--" + given.lstrip("-"), parser.flags(), cutoff=0.7)

    def _command(self) -> CommandParser:
        """Return the parser of the command on the command line, else this one."""
        command = next((word for word in self._given if word in self.commands), "")
        return self.commands.get(command, self)

    def flags(self) -> list[str]:
        """Return the flags that the help shows, such as `--config`."""
        shown = (action for action in self._actions if action.help is not argparse.SUPPRESS)
        return [option for action in shown for option in action.option_strings if option.startswith("--")]


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keep the line breaks of epilogs, give flags a wider column than argparse does, and do not break `--some-flag`."""

    def __init__(self, prog: str, **named: object) -> None:
        super().__init__(prog, **({"max_help_position": 34} | named))  # type: ignore[arg-type]

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _meant(given: str, words: Iterable[str], *, cutoff: float = 0.6) -> str:
    import difflib

    close = difflib.get_close_matches(given, list(words), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def duration(text: str) -> float:
    """Parse a Go duration or plain seconds."""
    from scheduler.config.document import parse_duration_s

    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, got {text!r}") from None
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, got {text!r}")
    return seconds
