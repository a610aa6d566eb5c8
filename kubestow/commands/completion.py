"""Completion at the TAB key: the script of each shell, and the candidates, some of which are names in the cluster.

A shell starts the command with `_ARGCOMPLETE` in its environment. argcomplete mutes both outputs, and completers never
raise: an unreachable cluster has no candidates.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from argcomplete import autocomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter, SuppressCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.shell_integration import shellcode

from kubestow.commands.flags import OPERATOR_COMMANDS
from scheduler.cli.client_flags import label
from scheduler.cli.closed_pipe import until_closed
from scheduler.cli.command_parser import CommandParser
from scheduler.cli.flags import parser
from scheduler.cli.kubectl_plugin import plugin_parser
from scheduler.cli.main import prepare_imports

_NO_FILES: Final = ":4"
"""The candidates are complete: the shell adds no names of files."""
LIMIT_S: Final = 1.0
"""For names in the cluster. The shell does not react before."""
NAMES_MAX: Final = 500
"""Names of one kind, in the server's order."""
_NAME: Final = re.compile(r"[a-z0-9.-]+")
"""Another name is none, and could mean something to a shell."""
Completer: TypeAlias = Callable[..., Iterable[str]]
_BY_METAVAR: Final[dict[str, Completer]] = {
    "FILE": FilesCompleter(),
    "DIR": DirectoriesCompleter(),
    "BOOL": lambda **_: ("true", "false"),
}


def completion(arguments: argparse.Namespace) -> int:
    """Print the script for a shell. Return the exit code."""
    print(shellcode(["kubestow"], shell=arguments.shell))
    return 0


def complete_for_shell() -> int:
    """Write the candidates for the shell that started this process, and end it."""
    whole = parser(OPERATOR_COMMANDS)
    _prepare(whole)
    autocomplete(whole, always_complete_options=False, default_completer=SuppressCompleter())
    return 0


def complete_for_kubectl(argv: Sequence[str] | None = None) -> int:
    """Print one candidate per line for the last word, and a directive of cobra. It is empty if the cursor follows a space."""
    words = list(sys.argv[1:] if argv is None else argv) or [""]

    def shown() -> int:
        print(*sorted(candidates(plugin_parser(OPERATOR_COMMANDS), words[:-1], words[-1])), _NO_FILES, sep="\n")
        return 0

    return until_closed(shown)


def candidates(whole: CommandParser, before: Sequence[str], last: str) -> list[str]:
    """Return the candidates for the word `last` after the words `before`, without the program's name."""
    _prepare(whole)
    is_joined = last.startswith("--") and "=" in last
    flag, equals, value = last.partition("=") if is_joined else ("", "", last)
    words = [whole.prog, *before, *([flag] if is_joined else [])]
    finder = CompletionFinder(whole, always_complete_options=False, default_completer=SuppressCompleter())
    with Path(os.devnull).open("w", encoding="utf-8") as muted, contextlib.redirect_stderr(muted):
        found = finder._get_completions(words, value, "", None)  # noqa: SLF001 (kubectl has its own protocol)
    return [f"{flag}{equals}{each.rstrip()}" for each in found]


def _prepare(whole: CommandParser) -> None:
    """Give each argument its completer: by its name if it names objects, else by the name of its value."""
    for each in (whole, *whole.commands.values()):
        for action in each._actions:  # noqa: SLF001 (argparse has no other way to list them)
            completer = _BY_NAME.get(action.dest) or _BY_METAVAR.get(str(action.metavar))
            if completer is not None and action.choices is None:
                action.completer = completer  # type: ignore[attr-defined]


# -- names in the cluster --------------------------------------------------------------------------------------------------


def _nodes(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    return [name for _, name in _listed(parsed_args, "nodes")]


def _namespaces(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    return [name for _, name in _listed(parsed_args, "namespaces")]


def _pods(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return names of pods: with their namespace if the word has one."""
    given, slash, _name = prefix.partition("/")
    namespace = given if slash else _namespace_of(parsed_args)
    return [f"{found}/{name}" if slash else name for found, name in _listed(parsed_args, "pods", namespace)]


def _namespace_of(parsed_args: argparse.Namespace) -> str:
    found = getattr(parsed_args, "namespace", None)
    return str(found) if isinstance(found, str) else ""


def _contexts(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return the contexts of the kubeconfig. Its files are read as kubectl reads them."""
    import yaml

    found: list[str] = []
    files = getattr(parsed_args, "kubeconfig", None) or os.environ.get("KUBECONFIG") or "~/.kube/config"
    for file in files.split(os.pathsep):
        # The file is missing, or it is no kubeconfig.
        with contextlib.suppress(OSError, yaml.YAMLError, TypeError, KeyError, ValueError, RuntimeError):
            text = Path(file).expanduser().read_text(encoding="utf-8")
            found += [str(each["name"]) for each in yaml.safe_load(text)["contexts"]]
    return found


_BY_NAME: Final[dict[str, Completer]] = {
    "key": _pods,
    "without": _pods,
    "drain": _nodes,
    "cordon": _nodes,
    "add_node_like": _nodes,
    "nodes_needed": _nodes,
    "namespace": _namespaces,
    "scheduler_namespace": _namespaces,
    "lease_namespace": _namespaces,
    "context": _contexts,
}
"""Argument → what it names."""


def _listed(parsed_args: argparse.Namespace, kind: str, namespace: str | None = None) -> list[tuple[str, str]]:
    """Return namespaces and names of the objects; none if the cluster does not answer in time.

    The namespace "" is that of the kubeconfig's context; None is for objects without one.
    """
    import asyncio

    prepare_imports()
    try:
        return asyncio.run(_list(parsed_args, kind, label(namespace) if namespace else namespace))
    except Exception:  # noqa: BLE001 (a shell shows no errors at the TAB key)
        return []


async def _list(parsed_args: argparse.Namespace, kind: str, namespace: str | None) -> list[tuple[str, str]]:
    import asyncio

    import msgspec

    from scheduler.core.clock import SystemClock
    from scheduler.kube.client_config import load_settings
    from scheduler.kube.transport import HttpTransport
    from scheduler.kube.wire import METADATA_LIST

    kubeconfig, context = (getattr(parsed_args, name, None) or None for name in ("kubeconfig", "context"))
    async with asyncio.timeout(LIMIT_S):
        settings = await load_settings(kubeconfig, context=context)
        own = f"namespaces/{namespace or settings.namespace or 'default'}/" if namespace is not None else ""
        transport = HttpTransport(settings, clock=SystemClock())
        try:
            path, query = f"/api/v1/{own}{kind}", {"limit": str(NAMES_MAX)}
            raw = await transport.get(path, query=query, accept=METADATA_LIST)
        finally:
            await transport.close()
    found = (each["metadata"] for each in msgspec.json.decode(raw)["items"][:NAMES_MAX])
    names = [(str(each.get("namespace", "")), str(each["name"])) for each in found]
    return [each for each in names if _NAME.fullmatch("".join(each))]
