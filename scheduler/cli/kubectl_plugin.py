"""The plugin of kubectl: `kubectl kubestow explain | what-if | version`, and the commands of the package above.

kubectl runs the program `kubectl-kubestow` for `kubectl kubestow`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from scheduler.cli.client_flags import USAGE_EXIT_CODE, MoreCommands, add_client_commands
from scheduler.cli.closed_pipe import until_closed
from scheduler.cli.command_parser import CommandParser
from scheduler.cli.flags import add_version
from scheduler.cli.main import CLIENT_COMMANDS, print_version, run_command


def plugin_parser(more: MoreCommands | None = None) -> CommandParser:
    """Return the parser of `kubectl kubestow`."""
    prog = "kubectl kubestow"
    whole = CommandParser(
        prog=prog,
        usage=f"{prog} COMMAND [flags]",
        description="Find out from the running Kubestow scheduler how it does, why a pod is pending, and whether pods would fit.",
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
    if more is not None:
        more.add(command, prog)
    command("version", "print the version", "", None)
    whole.commands = group.choices
    return whole


def main(argv: Sequence[str] | None = None, more: MoreCommands | None = None) -> int:
    """Run one command of the plugin and return its exit code. Wrong usage raises SystemExit(3)."""
    return until_closed(partial(_main, argv, more or MoreCommands()))


def _main(argv: Sequence[str] | None, more: MoreCommands) -> int:
    parser = plugin_parser(more)
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    return run_command({**CLIENT_COMMANDS, **more.run, "version": print_version}, arguments)
