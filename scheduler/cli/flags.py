"""The flags of `kubestow`: kube-scheduler's for `run`, in the spellings that Go programs take.

`--flag=value`, `--flag value`, `--flag=true`. Only parses: what values mean together is the commands' business.

Upstream: cmd/kube-scheduler/app/options/options.go Options
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from scheduler import __version__
from scheduler.cli.command_parser import CommandParser
from scheduler.cli.flag_values import (
    MergeGates,
    address,
    boolean,
    burst,
    cipher_suites,
    duration,
    emulated_version,
    feature_gates,
    non_empty,
    paths,
    port,
    positive_duration,
    rate,
    validation_level,
)
from scheduler.cli.upstream_flags import add_upstream_flags
from scheduler.config.types import ALWAYS_ALLOWED, DEFAULT_PORT, EVERYWHERE, TLS_VERSIONS
from scheduler.core.feature_gates import DEFAULT_VERSION, VERSIONS

ELECTION: Final = "leaderElection."
"""Flags of leader election are parsed under the path of the field that they win over."""
SHELLS: Final = ("bash", "zsh", "tcsh")
_QUIET: Final = -1
_USAGE_ERRORS: Final = "  2    the command line is wrong: an unknown flag or command, or a value that is not accepted"
_EXIT_CODES: Final = f"""\
exit codes:
  0    the command succeeded
  1    the command failed or was refused; standard error says why
{_USAGE_ERRORS}
  130  the command was interrupted

Help for a command: kubestow COMMAND --help"""
_EXIT_CODES_OF_RUN: Final = f"""\
exit codes:
  0    stopped by SIGTERM or SIGINT, after bindings and evictions ended
  1    the configuration is refused, the daemon cannot start, the lease is lost, or a part of the daemon failed
{_USAGE_ERRORS}
  130  stopped at once by a second signal"""
_EXIT_CODES_OF_SIMULATE: Final = """\
exit codes:
  0    every pod is placed, or pending as --expect-pending says
  1    a pod is pending or placed against expectation, the configuration is refused, or the simulation failed
  2    the manifests cannot be used, or the command line is wrong
  130  the command was interrupted"""
_EXIT_CODES_OF_CHECK: Final = f"""\
exit codes:
  0    all files are correct
  1    a file has mistakes; standard error has one line for each
{_USAGE_ERRORS}"""


def version_text() -> str:
    """Return the line that `kubestow version` prints."""
    versions = " and ".join(f"v{version}" for version in VERSIONS)
    return f"kubestow {__version__} (Python {sys.version.split()[0]}, decides as kube-scheduler {versions})"


def parser() -> CommandParser:
    """Return the parser of all commands."""
    whole = CommandParser(
        prog="kubestow",
        usage="kubestow COMMAND [flags]",
        description="A secondary Kubernetes scheduler. It places each pod together with its volumes and devices.",
        epilog=_EXIT_CODES,
    )
    _add_version(whole)
    group = whole.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", prog="kubestow", parser_class=CommandParser
    )

    def command(name: str, summary: str, arguments: str, epilog: str | None = None) -> CommandParser:
        usage = f"kubestow {name} {arguments}"
        return group.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", usage=usage, epilog=epilog
        )

    _add_run(command("run", "schedule the pods of a cluster", "[flags]", _EXIT_CODES_OF_RUN))
    _add_simulate(
        command(
            "simulate",
            "schedule the pods of manifests, without a cluster",
            "[flags] FILE...",
            _EXIT_CODES_OF_SIMULATE,
        )
    )
    check = command(
        "check-config",
        "list all mistakes of KubeSchedulerConfiguration files",
        "[flags] FILE...",
        _EXIT_CODES_OF_CHECK,
    )
    check.add_argument("files", type=non_empty, nargs="+", metavar="FILE", help="KubeSchedulerConfiguration v1")
    _allow_default_scheduler(check)
    _add_emulated_version(check, DEFAULT_VERSION)
    completion = command("completion", "print a completion script for a shell", f"{{{','.join(SHELLS)}}}", _COMPLETION)
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    command("version", "print the version", "")
    whole.commands = group.choices
    return whole


_COMPLETION: Final = """\
to load it:
  bash  source <(kubestow completion bash)
  zsh   kubestow completion zsh > "${fpath[1]}/_kubestow"
  tcsh  kubestow completion tcsh > ~/.kubestow.tcsh; then: source ~/.kubestow.tcsh"""


class _Version(argparse.Action):
    """kube-scheduler's `--version`: true and raw print the version and exit."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if values not in {"true", "raw", "false"}:
            raise argparse.ArgumentError(self, f"expected true, raw or false, got {values!r}")
        if values != "false":
            sys.stdout.write(f"{version_text()}\n")
            parser.exit()


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--version",
        action=_Version,
        nargs="?",
        const="true",
        default=argparse.SUPPRESS,
        metavar="BOOL",
        help="print the version and exit",
    )


def _add_run(run: argparse.ArgumentParser) -> None:
    add = run.add_argument
    add("--config", metavar="FILE", help="KubeSchedulerConfiguration v1; flags override its fields")
    add(
        "--kubeconfig",
        metavar="FILE",
        default="",
        help="kubeconfig of the API server (default: the first of clientConnection.kubeconfig, the service account of"
        " the pod, $KUBECONFIG, ~/.kube/config)",
    )
    add("--master", metavar="URL", default="", help="address of the API server; overrides the one in the kubeconfig")
    add("--kube-api-qps", type=rate, metavar="N", help="requests per second; negative: unlimited")
    add("--kube-api-burst", type=burst, metavar="N", help="number of requests that may exceed --kube-api-qps at once")
    add(
        "--pod-max-in-unschedulable-pods-duration",
        type=duration,
        default=300.0,
        metavar="DURATION",
        help="an unschedulable pod is retried after this time, even without an event (default 5m0s)",
    )
    add(
        "--drain-timeout",
        type=duration,
        default=30.0,
        metavar="DURATION",
        help="time that running bindings and evictions may take after SIGTERM (default 30s)",
    )
    add(
        "--csi-storage-capacity-api-version",
        choices=("auto", "v1", "v1beta1", "none"),
        default="auto",
        help="API version of CSIStorageCapacity; auto: the newest that is served; none: do not check storage capacity"
        " (default auto)",
    )
    add(
        "--scheduler-profiles",
        type=boolean,
        nargs="?",
        const=True,
        default=True,
        metavar="BOOL",
        help="apply SchedulerProfile objects to the profiles at run time, if the cluster serves them (default true)",
    )
    add(
        "--force",
        type=boolean,
        nargs="?",
        const=True,
        default=False,
        metavar="BOOL",
        help="start even if a live Lease of another installation names the same scheduler name (default false)",
    )
    add("--write-config-to", metavar="FILE", help="write the configuration with all defaults to FILE, and exit")
    add(
        "--feature-gates",
        action=MergeGates,
        type=feature_gates,
        default={},
        metavar="NAME=BOOL,...",
        help="kube-scheduler's feature gates; may be repeated",
    )
    _add_emulated_version(run, "that of the API server, read at start")
    _add_serving(run)
    _add_authentication(run)
    _add_election(run)
    add(
        "--loop",
        choices=("uvloop", "asyncio"),
        default="uvloop",
        help="implementation of the event loop (default uvloop)",
    )
    add("--logging-format", choices=("text", "json"), default="text", help="format of log lines (default text)")
    add(
        "-v",
        "--v",
        type=int,
        default=0,
        metavar="LEVEL",
        help="log level; 2: also one line per bound pod; 4: also debug lines of libraries (default 0)",
    )
    _allow_default_scheduler(run)
    _add_version(run)
    add_upstream_flags(run)


def _add_serving(run: argparse.ArgumentParser) -> None:
    add = run.add_argument_group("serving").add_argument
    add(
        "--secure-port",
        type=port,
        default=DEFAULT_PORT,
        metavar="PORT",
        help=f"port of the HTTPS server; 0: no HTTPS server (default {DEFAULT_PORT})",
    )
    add(
        "--bind-address",
        type=address,
        default=EVERYWHERE,
        metavar="IP",
        help="IP address of the HTTPS server (default 0.0.0.0: all addresses of the host)",
    )
    add(
        "--permit-port-sharing",
        type=boolean,
        nargs="?",
        const=True,
        default=False,
        metavar="BOOL",
        help="set SO_REUSEPORT, so that several processes can listen on --secure-port (default false)",
    )
    add(
        "--cert-dir",
        metavar="DIR",
        default="",
        help="directory with kube-scheduler.crt and kube-scheduler.key; used if they exist and --tls-cert-file is absent",
    )
    add(
        "--tls-cert-file",
        metavar="FILE",
        default="",
        help="serving certificate (PEM), followed by the certificates of its signers; reread when it changes"
        " (default: self-signed, in memory)",
    )
    add("--tls-private-key-file", metavar="FILE", default="", help="private key of --tls-cert-file (PEM)")
    add(
        "--tls-min-version",
        choices=TLS_VERSIONS,
        default=TLS_VERSIONS[0],
        help=f"oldest TLS version that is accepted (default {TLS_VERSIONS[0]})",
    )
    add(
        "--tls-cipher-suites",
        type=cipher_suites,
        default=(),
        metavar="SUITE,...",
        help="cipher suites for TLS 1.2, by Go's names; those of TLS 1.3 are always on (default: OpenSSL's)",
    )
    add(
        "--plain-port",
        type=port,
        default=0,
        metavar="PORT",
        help="port for all endpoints on 127.0.0.1 by HTTP, without authentication; 0: no such port (default 0)",
    )


def _add_authentication(run: argparse.ArgumentParser) -> None:
    add = run.add_argument_group("authentication and authorization").add_argument
    for name, reviews in (("authentication", "TokenReviews"), ("authorization", "SubjectAccessReviews")):
        add(
            f"--{name}-kubeconfig",
            metavar="FILE",
            default="",
            help=f"kubeconfig of the API server that answers {reviews} (default: the API server of --kubeconfig)",
        )
    add(
        "--client-ca-file",
        metavar="FILE",
        default="",
        help="certificate authorities that sign client certificates (PEM) (default: those of the cluster)",
    )
    for name, default, text in (
        ("authentication-skip-lookup", False, "do not read the client CA from the cluster (default false)"),
        ("authentication-tolerate-lookup-failure", True, "start even if the client CA cannot be read (default true)"),
    ):
        add(f"--{name}", type=boolean, nargs="?", const=True, default=default, metavar="BOOL", help=text)
    for name, text in (
        ("authentication-token-webhook-cache-ttl", "time for which the result of a TokenReview is cached"),
        ("authorization-webhook-cache-authorized-ttl", "time for which a granted SubjectAccessReview is cached"),
        ("authorization-webhook-cache-unauthorized-ttl", "time for which a denied SubjectAccessReview is cached"),
    ):
        add(f"--{name}", type=duration, default=10.0, metavar="DURATION", help=f"{text} (default 10s)")
    add(
        "--authorization-always-allow-paths",
        type=paths,
        default=ALWAYS_ALLOWED,
        metavar="PATH,...",
        help="paths that need no authorization; a * at the end matches every rest"
        f" (default {','.join(ALWAYS_ALLOWED)})",
    )


def _add_election(run: argparse.ArgumentParser) -> None:
    add = run.add_argument_group("leader election").add_argument
    add(
        "--leader-elect",
        dest=f"{ELECTION}leaderElect",
        type=boolean,
        nargs="?",
        const=True,
        metavar="BOOL",
        help="only the replica that holds the Lease schedules (default true)",
    )
    for name, field, text in (
        (
            "lease-duration",
            "leaseDuration",
            "another replica may take a Lease that was not renewed for this time (default 15s)",
        ),
        (
            "renew-deadline",
            "renewDeadline",
            "the leader exits if it could not renew the Lease for this time (default 10s)",
        ),
        ("retry-period", "retryPeriod", "time between two attempts to acquire or renew the Lease (default 2s)"),
    ):
        add(f"--leader-elect-{name}", dest=f"{ELECTION}{field}", type=positive_duration, metavar="DURATION", help=text)
    for name, field, text in (
        ("resource-lock", "resourceLock", "kind of the lock; leases is the only one (default leases)"),
        ("resource-name", "resourceName", "name of the Lease (default kubestow)"),
        ("resource-namespace", "resourceNamespace", "namespace of the Lease (default kube-system)"),
    ):
        add(f"--leader-elect-{name}", dest=f"{ELECTION}{field}", type=non_empty, metavar="NAME", help=text)


def _add_simulate(simulate: argparse.ArgumentParser) -> None:
    add = simulate.add_argument
    add(
        "files",
        nargs="*",
        metavar="FILE",
        help="manifests, or the output of `kubectl get -o yaml`: file, directory or - (standard input); gzip is read too",
    )
    add("-f", "--filename", action="append", default=[], metavar="FILE", help="same as FILE; may be repeated")
    add("-R", "--recursive", action="store_true", help="read directories recursively")
    add(
        "--validate",
        type=validation_level,
        nargs="?",
        const="strict",
        default="strict",
        metavar="LEVEL",
        help="strict: reject what an API server rejects; warn: print mistakes and go on; ignore (default strict)",
    )
    add("--strict", action="store_true", help="exit with 2 if the input refers to objects that it does not have")
    add("-o", "--output", choices=("table", "json"), default="table", help="format of the result (default table)")
    add(
        "--expect-pending",
        action="append",
        default=[],
        metavar="NS/NAME",
        help="pod that may stay pending; a glob; may be repeated",
    )
    add(
        "--timeout",
        type=duration,
        default=120.0,
        metavar="DURATION",
        help="end the simulation after this time (default 2m0s)",
    )
    add("--config", metavar="FILE", help="KubeSchedulerConfiguration v1")
    add("--keep-scheduler-names", action="store_true", help="do not schedule pods of default-scheduler")
    add(
        "-v",
        "--v",
        type=int,
        default=_QUIET,
        metavar="LEVEL",
        help="log level of the daemon, 0 or above (default: no log)",
    )
    _allow_default_scheduler(simulate)
    _add_emulated_version(simulate, f"that of the cluster with --from-cluster, else {DEFAULT_VERSION}")
    _add_cluster(simulate)


def _add_cluster(simulate: argparse.ArgumentParser) -> None:
    add = simulate.add_argument_group("input from a cluster").add_argument
    add(
        "--from-cluster",
        action="store_true",
        help="read the objects of a cluster; objects of FILE are added or replace them",
    )
    add("--context", type=non_empty, metavar="NAME", help="context of the kubeconfig (default: its current-context)")
    add(
        "--kubeconfig",
        type=non_empty,
        metavar="FILE",
        help="kubeconfig (default: the first of the service account of the pod, $KUBECONFIG, ~/.kube/config)",
    )
    add(
        "-n",
        "--namespace",
        type=non_empty,
        action="append",
        default=[],
        metavar="NS",
        help="simulate only pending pods and workloads of this namespace; may be repeated",
    )
    add("--allow-partial", action="store_true", help="go on without the objects that the user may not list")
    add("--save", type=non_empty, metavar="FILE", help="write the objects of the cluster; gzip if the name ends in .gz")
    add(
        "--print-dump-command",
        action="store_true",
        help="print the kubectl command that reads the same objects, and exit",
    )


def _add_emulated_version(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--emulated-version",
        type=emulated_version,
        metavar="VERSION",
        help="version of kube-scheduler whose defaults and behaviour are used:"
        f" {' or '.join(VERSIONS)} (default: {default})",
    )


def _allow_default_scheduler(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-default-scheduler",
        type=boolean,
        nargs="?",
        const=True,
        default=False,
        metavar="BOOL",
        help="accept a profile named default-scheduler; only for clusters without kube-scheduler (default false)",
    )
