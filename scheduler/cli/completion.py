"""`kubestow completion`: a script with which a shell completes commands, flags, choices and file names."""

from __future__ import annotations

from typing import Final

import shtab

from scheduler.cli.command_parser import CommandParser

_COMPLETED: Final = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
_BOOLEANS: Final = ("true", "false")
_EQUALS_SIGNS: Final = """
# bash splits --flag=value into three words, of which shtab expects the first and the last.
_kubestow() {
  local words=() at
  for ((at = 0; at <= COMP_CWORD; at++)); do
    if [[ "${COMP_WORDS[at]}" != "=" ]]; then words+=("${COMP_WORDS[at]}")
    elif ((at == COMP_CWORD)); then words+=("")
    fi
  done
  local COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1))
  _shtab_kubestow
}
complete -o bashdefault -F _kubestow kubestow
"""


def script(parser: CommandParser, shell: str) -> str:
    """Return the script for the shell. Arguments named FILE or DIR complete paths, BOOL completes true and false."""
    for each in (parser, *parser.commands.values()):
        for action in each._actions:  # noqa: SLF001 (argparse has no other way to list them)
            if action.metavar in _COMPLETED:
                action.complete = _COMPLETED[str(action.metavar)]  # type: ignore[attr-defined]
            elif action.metavar == "BOOL" and action.choices is None:
                action.choices = _BOOLEANS
    return str(shtab.complete(parser, shell=shell)) + (_EQUALS_SIGNS if shell == "bash" else "")
