"""The commands that send requests to the running scheduler, `explain`, `what-if` and `ui`, and their flags.

`kubestow` has them among other commands, and kubectl's plugin has them alone. Their texts name the program.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from scheduler.cli.command_parser import CommandParser, duration
from scheduler.config.types import LeaderElection

USAGE_EXIT_CODE: Final = 3
"""The exit code of wrong usage: 2 means that the pod does not fit."""
REPLICAS_MAX: Final = 1000
NODES_MAX: Final = 100
"""Both are the scheduler's limits, repeated here because kubectl's plugin does not have its modules."""
_DIGITS_MAX: Final = 19
"""Digits of a number of 64 bits."""
_EXIT_CODES: Final = """\
exit codes:
  0    the pods fit, or are on nodes already
  1    they fit after something that is under way or known: evictions, terminating pods, scheduling gates
  2    they do not fit; with --scale or --nodes-needed: a pod stays pending, or no number of nodes suffices
  3    the request is malformed: wrong flags, an unreadable manifest, no such pod
  4    the scheduler gave no answer; standard error says why, and what to do next
  5    nothing to place: the manifests have no pod, so nothing was checked
  130  the command was interrupted"""

_EXIT_CODES_OF_UI: Final = """\
exit codes:
  0    it was ended by Ctrl-C
  3    wrong flags
  4    the scheduler gave no answer; standard error says why, and what to do next"""

API_GROUPS: Final = ("scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh")
"""Those of the kinds of groups, in the scheduler's order; repeated here for the same reason."""

SCALED_KINDS: Final = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job")
"""Kinds that --scale changes; repeated here because the command line starts without the simulator."""

_Add: TypeAlias = Callable[..., argparse.Action]
CommandAdder: TypeAlias = Callable[[str, str, str, str | None], CommandParser]
"""Adds a command: name, summary, arguments in its usage line, and epilog."""


@dataclass(frozen=True, slots=True)
class MoreCommands:
    """Commands of a package above this one, for `kubestow` and for kubectl's plugin.

    `add` declares them. It gets the name of the program, which begins the lines of their errors. `run` has the function
    of each by its name.
    """

    add: Callable[[CommandAdder, str], None] = lambda _command, _prog: None
    run: Mapping[str, Callable[[argparse.Namespace], int]] = field(default_factory=dict)


def add_client_commands(command: CommandAdder, prog: str) -> None:
    """Add `explain`, `what-if` and `ui`. `prog` begins the lines of their errors."""
    why = "explain why a pod is pending, or why a group of pods does not start, by the running scheduler"
    explain = command("explain", why, "[flags] [pod | group] [NAMESPACE/]NAME", _EXIT_CODES)
    named = "the pod, as NAME or NAMESPACE/NAME; after the word group it is a PodGroup"
    explain.add_argument("key", nargs="+", type=pod_key, action=_Named, metavar="NAME", help=named)
    add_namespace(explain.add_argument, "namespace of the pod or group (default: that of the kubeconfig's context)")
    which = "API group of the PodGroup, if several have the name (default: the first of these)"
    explain.add_argument("--api-group", choices=API_GROUPS, default="", help=which)
    whether = "say whether pods would fit, and where, without a change of the cluster"
    what_if = command("what-if", whether, "[flags]", _EXIT_CODES)
    _add_question(what_if.add_argument)
    dump = "answer for this dump or these manifests instead of a running scheduler; may be repeated (see simulate)"
    what_if.add_argument("--cluster", type=non_empty, action="append", default=[], metavar="FILE", help=dump)
    what_if.set_defaults(
        config="", allow_default_scheduler=False, emulated_version="", min_compatibility_version="", feature_gates={}
    )
    opens = "open the page of the running scheduler in a browser, until Ctrl-C"
    page = command("ui", opens, "[flags]", _EXIT_CODES_OF_UI)
    page.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")
    local = "port of this machine's 127.0.0.1 for the page (default: a free one)"
    page.add_argument("--port", type=_port, default=0, metavar="PORT", help=local)
    for each in (explain, what_if):
        output = "format of the answer (default text)"
        each.add_argument("-o", "--output", choices=("text", "json"), default="text", help=output)
    for each in (explain, what_if, page):
        each.usage_exit_code = USAGE_EXIT_CODE
        each.set_defaults(prog=prog)
        add_access(each.add_argument_group("connection to the scheduler").add_argument)


class _Named(argparse.Action):
    """Store what is explained, `pod` or `group`, and its key. A single word is the key of a pod."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _flag: str | None = None
    ) -> None:
        *kinds, namespace.key = values
        if kinds not in ([], [("", "pod")], [("", "group")]):
            parser.error("expected one pod, or the word group and one group")
        namespace.explained = kinds[0][1] if kinds else "pod"


def _add_question(add: _Add) -> None:
    manifests = "manifests of a pod or a workload, and of its claims and PodGroup; - is standard input; may be repeated"
    add("-f", "--filename", type=non_empty, action="append", default=[], metavar="FILE", help=manifests)
    add("--replicas", type=_replicas, metavar="N", help="number of pods (default: that of the workload, or 1)")
    add_changes(add)
    partial = "with a plan: go on without the objects that the user may not list"
    add("--allow-partial", action="store_true", help=partial)
    without = "leave out a pod that exists, POD or NAMESPACE/POD; may be repeated"
    add("--without", type=pod_key, action="append", default=[], metavar="POD", help=without)
    add_namespace(add, "namespace of pods and manifests that name none (default: that of the kubeconfig's context)")


def add_changes(add: _Add) -> None:
    """Add the flags that change the cluster: --drain, --cordon, --add-node-like, --scale and --nodes-needed."""
    drain = "find other nodes for the pods of this node, as if it were drained; may be repeated"
    add("--drain", type=object_name, action="append", default=[], metavar="NODE", help=drain)
    cordon = "place no pod on this node; may be repeated"
    add("--cordon", type=object_name, action="append", default=[], metavar="NODE", help=cordon)
    like = f"add N empty nodes like this one, at most {NODES_MAX}; may be repeated (default of N: 1)"
    add("--add-node-like", type=nodes_like, action="append", default=[], metavar="NODE[=N]", help=like)
    scale = "give a workload N pods, such as deployment/web=5 or job/NAMESPACE/NAME=3; may be repeated"
    add("--scale", type=scaled, action="append", default=[], metavar="KIND/NAME=N", help=scale)
    needed = "print how many more nodes like this one are needed until every pod is placed, instead of the outcome"
    add("--nodes-needed", type=object_name, metavar="NODE", help=needed)


def add_namespace(add: _Add, text: str) -> None:
    """Add -n."""
    add("-n", "--namespace", type=label, metavar="NS", help=text)


def add_kubeconfig(add: _Add) -> None:
    """Add --kubeconfig and --context."""
    kubeconfig = "kubeconfig (default: the first of the service account of the pod, $KUBECONFIG, ~/.kube/config)"
    add("--kubeconfig", type=non_empty, metavar="FILE", help=kubeconfig)
    add("--context", type=non_empty, metavar="NAME", help="context of the kubeconfig (default: its current-context)")


def add_access(add: _Add) -> None:
    """Add the flags that say where the scheduler is."""
    default = LeaderElection()
    add_kubeconfig(add)
    namespace = f"namespace of the scheduler's pods (default {default.resource_namespace})"
    add("--scheduler-namespace", type=label, default=default.resource_namespace, metavar="NS", help=namespace)
    name = f"name of the scheduler's Lease; the chart names it after its release (default {default.resource_name})"
    add("--lease-name", type=object_name, default=default.resource_name, metavar="NAME", help=name)
    elsewhere = "namespace of the Lease (default: --scheduler-namespace)"
    add("--lease-namespace", type=label, metavar="NS", help=elsewhere)
    server = "address of a scheduler outside of the cluster, such as https://127.0.0.1:10259"
    add("--server", type=non_empty, metavar="URL", help=server)
    authority = "authorities of the scheduler's certificate (PEM) (default: the certificate is not verified)"
    add("--scheduler-ca-file", type=non_empty, metavar="FILE", help=authority)
    certified = "name in that certificate (default: LEASE-NAME.SCHEDULER-NAMESPACE.svc, or the host of --server)"
    add("--scheduler-server-name", type=non_empty, metavar="NAME", help=certified)
    add(
        "--timeout",
        type=_timeout,
        default=60.0,
        metavar="DURATION",
        help="time limit of the command, for ui of a request (default 1m0s)",
    )


def pod_key(text: str) -> tuple[str, str]:
    """Parse [NAMESPACE/]POD; the namespace is "" if none is named."""
    namespace, slash, name = text.rpartition("/")
    return label(namespace) if slash else "", object_name(name)


def nodes_like(text: str) -> tuple[str, int]:
    """Parse NODE[=N]; N is 1 if it is missing."""
    name, equals, number = text.partition("=")
    return object_name(name), count(number, NODES_MAX) if equals else 1


def object_name(text: str) -> str:
    """Parse the name of an object whose names are DNS subdomains, such as a node."""
    from scheduler.api.meta import subdomain

    return _checked(text, subdomain(text))


def label(text: str) -> str:
    """Parse the name of an object whose names are DNS labels, such as a namespace."""
    from scheduler.api.meta import dns_label

    return _checked(text, dns_label(text))


def _checked(name: str, mistakes: list[str]) -> str:
    if mistakes:
        raise argparse.ArgumentTypeError(f"{name!r} is no name: {mistakes[0]}")
    return name


def scaled(text: str) -> tuple[str, str, str, int]:
    """Parse KIND/[NAMESPACE/]NAME=N; the kind in any case."""
    workload, equals, number = text.rpartition("=")
    kind, *names = workload.split("/")
    kinds = {each.lower(): each for each in SCALED_KINDS}
    if not equals or len(names) not in {1, 2} or not all(names):
        raise argparse.ArgumentTypeError(f"expected KIND/NAME=N or KIND/NAMESPACE/NAME=N, got {text!r}")
    if kind.lower() not in kinds:
        raise argparse.ArgumentTypeError(f"{kind!r} cannot be scaled: expected one of {', '.join(SCALED_KINDS)}")
    return kinds[kind.lower()], names[0] if len(names) == 2 else "", names[-1], number_from(number, least=0)


def number_from(text: str, least: int) -> int:
    """Return a whole number that is not smaller than `least`. Python parses no number of thousands of digits."""
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX or int(text) < least:
        shown = text if len(text) <= _DIGITS_MAX else f"{text[:_DIGITS_MAX]}…"
        expected = f"must be a whole number from {least} on, with at most {_DIGITS_MAX} digits"
        raise argparse.ArgumentTypeError(f"{expected}, got {shown!r}")
    return int(text)


def _replicas(text: str) -> int:
    return count(text, REPLICAS_MAX)


def count(text: str, most: int) -> int:
    """Parse a whole number from 1 to `most`."""
    if not (text.isascii() and text.isdecimal() and len(text) < 7 and 0 < int(text) <= most):
        raise argparse.ArgumentTypeError(f"must be a number of 1 to {most}, got {text!r}")
    return int(text)


def _port(text: str) -> int:
    return count(text, 65535)


def non_empty(text: str) -> str:
    """Return the text; the value of an unset shell variable is refused."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _timeout(text: str) -> float:
    if not (seconds := duration(text)):
        raise argparse.ArgumentTypeError("must be greater than zero")
    return seconds
