"""The plugin of kubectl: `kubectl kubestow explain | what-if | version`, and its completion.

kubectl runs the program `kubectl-kubestow` for `kubectl kubestow`, and `kubectl_complete-kubestow` for the TAB key. The
latter gets the words after `kubectl kubestow`, and prints one candidate per line and a directive of cobra.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from scheduler.cli.client_flags import USAGE_EXIT_CODE, add_client_commands
from scheduler.cli.closed_pipe import until_closed
from scheduler.cli.command_parser import CommandParser
from scheduler.cli.flags import add_version
from scheduler.cli.main import CLIENT_COMMANDS, print_version, run_command

_FILES: Final = ":0"
"""The shell completes files."""
_NO_FILES: Final = ":4"


def plugin_parser() -> CommandParser:
    """Return the parser of `kubectl kubestow`."""
    prog = "kubectl kubestow"
    whole = CommandParser(
        prog=prog,
        usage=f"{prog} COMMAND [flags]",
        description="Find out why a pod is pending, and whether pods would fit, from the running Kubestow scheduler.",
        epilog="Help for a command: kubectl kubestow COMMAND --help",
        usage_exit_code=USAGE_EXIT_CODE,
    )
    add_version(whole.add_argument)
    group = whole.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", prog=prog, parser_class=CommandParser
    )

    def command(name: str, summary: str, arguments: str, epilog: str | None) -> CommandParser:
        described = f"{summary[0].upper()}{summary[1:]}."
        usage = f"{prog} {name} {arguments}"
        return group.add_parser(name, help=summary, description=described, usage=usage, epilog=epilog)

    add_client_commands(command, prog)
    command("version", "print the version", "", None)
    whole.commands = group.choices
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the plugin and return its exit code. Wrong usage raises SystemExit(3)."""
    return until_closed(partial(_main, argv))


def _main(argv: Sequence[str] | None) -> int:
    parser = plugin_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    return run_command({**CLIENT_COMMANDS, "version": print_version}, arguments)


def complete(argv: Sequence[str] | None = None) -> int:
    """Print candidates for the last word. It is empty if the cursor follows a space."""
    words = list(sys.argv[1:] if argv is None else argv) or [""]

    def shown() -> int:
        candidates, directive = completions(plugin_parser(), words[:-1], words[-1])
        print(*sorted(candidates), directive, sep="\n")
        return 0

    return until_closed(shown)


def completions(parser: CommandParser, before: Sequence[str], last: str) -> tuple[list[str], str]:
    """Return the candidates for `last` after the words `before`, and the directive."""
    command = next((word for word in before if word in parser.commands), "")
    chosen = parser.commands.get(command, parser)
    flag, is_joined, value = last.partition("=") if last.startswith("--") else (before[-1] if before else "", "", last)
    action = next(_actions(chosen, flag), None)
    if action is not None and action.nargs != 0 and (is_joined or flag in before[-1:]):
        head = f"{flag}=" if is_joined else ""
        if action.choices is not None:
            return [head + str(each) for each in action.choices if str(each).startswith(value)], _NO_FILES
        return [], _FILES if action.metavar == "FILE" else _NO_FILES
    if last.startswith("-"):
        return [each for each in chosen.flags() if each.startswith(last)], _NO_FILES
    return [] if command else [each for each in parser.commands if each.startswith(last)], _NO_FILES


def _actions(parser: CommandParser, flag: str) -> Iterator[argparse.Action]:
    """Yield the flag's action."""
    for action in parser._actions:  # noqa: SLF001 (argparse has no other way to list them)
        if flag in action.option_strings:
            yield action
