"""The flags of the operator's commands, and what runs them. Modules of a command load when it runs."""

from __future__ import annotations

import argparse
import importlib
from functools import partial
from typing import Final

from scheduler.cli.client_flags import USAGE_EXIT_CODE, CommandAdder, MoreCommands, add_access, add_namespace, count

SHELLS: Final = ("bash", "zsh", "fish", "powershell", "tcsh")
_LOADING: Final = """\
to load it:
  bash        source <(kubestow completion bash)
  zsh         kubestow completion zsh > "${fpath[1]}/_kubestow"
  fish        kubestow completion fish > ~/.config/fish/completions/kubestow.fish
  powershell  kubestow completion powershell | Out-String | Invoke-Expression
  tcsh        kubestow completion tcsh > ~/.kubestow.tcsh; then: source ~/.kubestow.tcsh

The TAB key then also completes names of pods, nodes, namespaces and contexts; the cluster has a second to answer."""
ROWS_SHOWN: Final = 50
ROWS_MAX: Final = 100_000
LOG_LINES: Final = 2000
LOG_LINES_MAX: Final = 100_000
_NO_ANSWER: Final = "  4    the scheduler gave no answer; standard error says why, and what to do next"
_STATUS_EXIT_CODES: Final = f"""\
exit codes:
  0    the scheduler is healthy
  1    it is not: the output names what is wrong, and what suffers
  3    the command line is wrong
{_NO_ANSWER}.
       Also if a part of its state could not be read
  130  the command was interrupted"""
_QUEUE_EXIT_CODES: Final = f"""\
exit codes:
  0    the queue is printed
  3    the command line is wrong
{_NO_ANSWER}
  130  the command was interrupted"""
_REPORT_EXIT_CODES: Final = """\
exit codes:
  0    the report is written; its file MANIFEST.txt names what could not be read
  1    the report cannot be written
  3    the command line is wrong
  4    nothing could be read; standard error says why, and what to do next
  130  the command was interrupted"""


def add_operator_commands(command: CommandAdder, prog: str) -> None:
    """Add `status`, `queue`, `bugreport`, and for the shell `completion`, which kubectl has itself."""
    health = "print whether the running scheduler is healthy, what it knows, and what its pods wait for"
    status = command("status", health, "[flags]", _STATUS_EXIT_CODES)
    waiting = "print the pods that wait in the running scheduler, in the order in which it will try them"
    queue = command("queue", waiting, "[flags]", _QUEUE_EXIT_CODES)
    add_namespace(queue.add_argument, "only pods of this namespace (default: of all namespaces)")
    rows = f"print at most N pods (default {ROWS_SHOWN})"
    queue.add_argument("--limit", type=partial(count, most=ROWS_MAX), default=ROWS_SHOWN, metavar="N", help=rows)
    for each in (status, queue):
        output = "format of the answer (default text)"
        each.add_argument("-o", "--output", choices=("text", "json"), default="text", help=output)
    parts = "write an archive about the running scheduler for a bug report, without secrets"
    report = command("bugreport", parts, "[flags]", _REPORT_EXIT_CODES)
    file = "the archive (default kubestow-bugreport-TIME.tar.gz); an existing file is not replaced"
    report.add_argument("--output-file", metavar="FILE", default="", help=file)
    lines = f"last lines of the log of each pod (default {LOG_LINES})"
    limit = partial(count, most=LOG_LINES_MAX)
    report.add_argument("--log-lines", type=limit, default=LOG_LINES, metavar="N", help=lines)
    no_objects = "leave out the objects of the cluster that scheduling reads"
    report.add_argument("--without-objects", action="store_true", help=no_objects)
    for each in (status, queue, report):
        each.usage_exit_code = USAGE_EXIT_CODE
        each.set_defaults(prog=prog)
        add_access(each.add_argument_group("connection to the scheduler").add_argument)
    if prog == "kubestow":
        completion = command("completion", "print a completion script for a shell", f"{{{','.join(SHELLS)}}}", _LOADING)
        completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def _run(name: str, arguments: argparse.Namespace) -> int:
    """Run the function of this name in the module of this name."""
    code: int = getattr(importlib.import_module(f"kubestow.commands.{name}"), name)(arguments)
    return code


OPERATOR_COMMANDS: Final = MoreCommands(
    add_operator_commands, {name: partial(_run, name) for name in ("status", "queue", "bugreport", "completion")}
)
