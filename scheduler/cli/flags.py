"""The flags of `kubestow`: kube-scheduler's for `run`, in the spellings that Go programs take.

`--flag=value`, `--flag value`, `--flag=true`. Only parses: what values mean together is the commands' business.

Upstream: cmd/kube-scheduler/app/options/options.go Options
"""

from __future__ import annotations

import argparse
import ipaddress
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from scheduler import __version__
from scheduler.cli.client_flags import (
    MoreCommands,
    add_changes,
    add_client_commands,
    add_kubeconfig,
    count,
    non_empty,
    number_from,
)
from scheduler.cli.command_parser import CommandParser, duration
from scheduler.config.types import ALWAYS_ALLOWED, CIPHER_SUITES, DEFAULT_PORT, EVERYWHERE, TLS_VERSIONS
from scheduler.core.feature_gates import DEFAULT_VERSION, VERSIONS, minor_version


@dataclass(frozen=True, slots=True)
class UpstreamFlag:
    """One flag. Without a `metavar` it is a boolean, which needs no value."""

    name: str
    metavar: str
    why: str


_SEEDS_MAX: Final = 10_000
_NO_PPROF: Final = "the daemon has no /debug/pprof pages"
_NO_HTTP2: Final = "the daemon serves HTTP/1.1 only"
_NO_BUFFER: Final = "log lines are written at once, to standard error"
_NO_STREAMS: Final = "all log lines go to standard error"
_NO_LIMIT: Final = "all metrics are shown with all their labels"

WITHOUT_EFFECT: Final = (
    UpstreamFlag("permit-address-sharing", "", "SO_REUSEADDR is always set"),
    UpstreamFlag("disable-http2-serving", "", _NO_HTTP2),
    UpstreamFlag("http2-max-streams-per-connection", "N", _NO_HTTP2),
    UpstreamFlag("profiling", "", _NO_PPROF),
    UpstreamFlag("contention-profiling", "", _NO_PPROF),
    UpstreamFlag("kube-api-content-type", "TYPE", "requests are sent as JSON"),
    UpstreamFlag("show-hidden-metrics-for-version", "VERSION", "no metric is hidden"),
    UpstreamFlag("disabled-metrics", "NAME,...", _NO_LIMIT),
    UpstreamFlag("allow-metric-labels", "METRIC,LABEL=VALUE,...", _NO_LIMIT),
    UpstreamFlag("allow-metric-labels-manifest", "FILE", _NO_LIMIT),
    UpstreamFlag("log-flush-frequency", "DURATION", _NO_BUFFER),
    UpstreamFlag("log-json-info-buffer-size", "SIZE", _NO_BUFFER),
    UpstreamFlag("log-text-info-buffer-size", "SIZE", _NO_BUFFER),
    UpstreamFlag("log-json-split-stream", "", _NO_STREAMS),
    UpstreamFlag("log-text-split-stream", "", _NO_STREAMS),
    UpstreamFlag("vmodule", "PATTERN=N,...", "the log level is the same for all modules: use --v"),
)
"""Accepted; each logs one line at start."""

_NO_PROXY: Final = (
    "Kubestow does not authenticate callers by the headers of a front proxy; use tokens or client certificates"
)

REFUSED: Final = (
    *(
        UpstreamFlag(f"requestheader-{name}", "VALUE", _NO_PROXY)
        for name in (
            "allowed-names",
            "client-ca-file",
            "extra-headers-prefix",
            "group-headers",
            "uid-headers",
            "username-headers",
        )
    ),
    UpstreamFlag(
        "tls-curve-preferences",
        "ID,...",
        "Python's TLS library cannot restrict the key exchange; use --tls-min-version and --tls-cipher-suites",
    ),
    UpstreamFlag(
        "tls-sni-cert-key",
        "CERT,KEY",
        "Kubestow serves one certificate; put all host names into that of --tls-cert-file",
    ),
)
"""Refused as wrong usage, with the reason."""


def add_upstream_flags(run: argparse.ArgumentParser) -> None:
    """Add the flags of both tables. `without_effect` has the reasons of the given flags that have none, by name."""
    run.set_defaults(without_effect={})
    add = run.add_argument_group("kube-scheduler's flags without effect", "Each logs one line at start.").add_argument
    for flag in WITHOUT_EFFECT:
        add(f"--{flag.name}", action=_WithoutEffect, const=flag.why, help=flag.why, **_value(flag))
    for flag in REFUSED:
        run.add_argument(f"--{flag.name}", action=_Refuse, const=flag.why, help=argparse.SUPPRESS, **_value(flag))


def _value(flag: UpstreamFlag) -> dict[str, Any]:
    return {"metavar": flag.metavar} if flag.metavar else {"nargs": "?", "metavar": "BOOL"}


class _WithoutEffect(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        name = self.option_strings[0].removeprefix("--")
        namespace.without_effect = {**namespace.without_effect, name: self.const}


class _Refuse(argparse.Action):
    """`const` is the reason."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        raise argparse.ArgumentError(self, f"refused: {self.const}")


def boolean(text: str) -> bool:
    """Parse what Go's strconv.ParseBool accepts."""
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")


def rate(text: str) -> float:
    """Parse requests per second; negative means unlimited."""
    try:
        per_second = float(text)
    except ValueError:
        per_second = math.nan
    if not math.isfinite(per_second):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return per_second


def positive_duration(text: str) -> str:
    """Return a positive duration in Go's form."""
    from scheduler.config.document import format_duration

    seconds = duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError("must be greater than zero")
    return format_duration(seconds)


def port(text: str) -> int:
    """Parse a port; 0 means none."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be 0..65535, got {text!r}")
    return int(text)


def address(text: str) -> str:
    """Parse an IP address; an empty text means all addresses, as in kube-scheduler."""
    try:
        return str(ipaddress.ip_address(text or EVERYWHERE))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an IP address, got {text!r}") from None


def paths(text: str) -> tuple[str, ...]:
    """Parse paths as kube-scheduler does: a slash before each, a * at the end only."""
    found = tuple(f"/{path.removeprefix('/')}" for path in text.split(",")) if text else ()
    for path in found:
        if "*" in path[:-1]:
            raise argparse.ArgumentTypeError(f"only trailing * allowed in {path!r}")
    return found


def cipher_suites(text: str) -> tuple[str, ...]:
    """Parse Go's names of cipher suites."""
    names = tuple(filter(None, text.split(",")))
    for name in names:
        if name not in CIPHER_SUITES:
            raise argparse.ArgumentTypeError(f"{name} is not accepted, expected some of {', '.join(CIPHER_SUITES)}")
    return names


def feature_gates(text: str) -> dict[str, bool]:
    """Parse `NAME=BOOL,...`; the component `kube:` before a name may be left out, as in kube-scheduler."""
    gates = {}
    for part in filter(None, text.split(",")):
        name, found, value = part.partition("=")
        if not found:
            raise argparse.ArgumentTypeError(f"must be NAME=true or NAME=false, got {part!r}")
        component, _, gate = name.strip().rpartition(":")
        if component not in {"", "kube"}:
            raise argparse.ArgumentTypeError(f"component not registered: {component}")
        gates[gate] = boolean(value.strip())
    return gates


def _or(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def emulated_version(text: str) -> str:
    """Parse a version of kube-scheduler; the component `kube=` before it may be left out, as in kube-scheduler."""
    found = {part.strip().removeprefix("kube=") for part in text.split(",")}
    if len(found) != 1 or not found.issubset(VERSIONS):
        expected = f"the behaviour is kube-scheduler's of {_or(VERSIONS)}: expected one of them"
        raise argparse.ArgumentTypeError(f"{expected}, got {text!r}")
    return found.pop()


def min_compatibility_version(text: str) -> str:
    """Parse a minor version; the component `kube=` before it may be left out, as in kube-scheduler."""
    version = text.strip().removeprefix("kube=")
    if "," in version or "=" in version or not (found := minor_version(version)) or version != "{}.{}".format(*found):
        raise argparse.ArgumentTypeError(f"must be a minor version such as {VERSIONS[0]}, got {text!r}")
    return version


class MergeGates(argparse.Action):
    """Merge repeated flags; the last value of a gate wins."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), **values})


def validation_level(text: str) -> str:
    """Parse a level of `--validate`. As in kubectl true stands for strict, and false for ignore."""
    if text in {"strict", "warn", "ignore"}:
        return text
    try:
        return "strict" if boolean(text) else "ignore"
    except argparse.ArgumentTypeError:
        message = f"must be strict, warn or ignore, got {text!r}; the value follows a =, as in --validate=warn"
        raise argparse.ArgumentTypeError(message) from None


ELECTION: Final = "leaderElection."
"""Flags of leader election are parsed under the path of the field that they win over."""
_QUIET: Final = -1
_USAGE_ERRORS: Final = "  2    the command line is wrong: an unknown flag or command, or a value that is not accepted"
_OLDEST: Final = "oldest version in the control plane, which switches some feature gates (default: the version before)"
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
  0    every pod is placed, or pending as --expect-pending says; with --nodes-needed: a number of nodes suffices
  1    a pod is pending, gone or placed against expectation, no number of nodes suffices, the configuration is refused,
       or the simulation failed
  2    the manifests cannot be used, or the command line is wrong
  5    nothing to place: no pod was to be scheduled, so nothing was checked
  130  the command was interrupted"""
_EXIT_CODES_OF_CHECK: Final = f"""\
exit codes:
  0    all files are correct
  1    a file has mistakes; standard error has one line for each
{_USAGE_ERRORS}"""

_EXIT_CODES_OF_RECORD: Final = f"""\
exit codes:
  0    the recording is complete: its time or size is reached, or SIGINT or SIGTERM came
{_USAGE_ERRORS}; or the cluster cannot be read"""
_EXIT_CODES_OF_REPLAY: Final = f"""\
exit codes:
  0    the recording was replayed
  1    the configuration is refused, or the scheduler failed
{_USAGE_ERRORS}; or the recording cannot be used
  130  the command was interrupted"""


def version_text() -> str:
    """Return the line that `kubestow version` prints."""
    versions = f"v{VERSIONS[0]} to v{VERSIONS[-1]}"
    return f"kubestow {__version__} (Python {sys.version.split()[0]}, decides as kube-scheduler {versions})"


def parser(more: MoreCommands | None = None) -> CommandParser:
    """Return the parser of all commands."""
    whole = CommandParser(
        prog="kubestow",
        usage="kubestow COMMAND [flags]",
        description="A secondary Kubernetes scheduler. It places each pod together with its volumes and devices.",
        epilog=_EXIT_CODES,
    )
    add_version(whole.add_argument)
    group = whole.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", prog="kubestow", parser_class=CommandParser
    )

    def command(name: str, summary: str, arguments: str, epilog: str | None = None) -> CommandParser:
        usage = f"kubestow {name} {arguments}"
        return group.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", usage=usage, epilog=epilog
        )

    _add_run(command("run", "schedule the pods of a cluster", "[flags]", _EXIT_CODES_OF_RUN))
    simulation = "schedule the pods of manifests, without a cluster"
    _add_simulate(command("simulate", simulation, "[flags] FILE...", _EXIT_CODES_OF_SIMULATE))
    checking = "list all mistakes of KubeSchedulerConfiguration files"
    check = command("check-config", checking, "[flags] FILE...", _EXIT_CODES_OF_CHECK)
    check.add_argument("files", type=non_empty, nargs="+", metavar="FILE", help="KubeSchedulerConfiguration v1")
    _add_behaviour(check.add_argument, DEFAULT_VERSION)
    recording = "record the history of a cluster in a file, without secrets"
    _add_record(command("record", recording, "[flags] FILE", _EXIT_CODES_OF_RECORD).add_argument)
    replay = "replay a recorded history under one or two configurations"
    _add_replay(command("replay", replay, "[flags] FILE", _EXIT_CODES_OF_REPLAY).add_argument)
    add_client_commands(command, "kubestow")
    if more is not None:
        more.add(command, "kubestow")
    command("version", "print the version", "")
    whole.commands = group.choices
    return whole


class _Version(argparse.Action):
    """kube-scheduler's `--version`: true and raw print the version and exit."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if values not in {"true", "raw", "false"}:
            raise argparse.ArgumentError(self, f"expected true, raw or false, got {values!r}")
        if values != "false":
            sys.stdout.write(f"{version_text()}\n")
            parser.exit()


_Add: TypeAlias = Callable[..., argparse.Action]
"""The method `add_argument` of a parser or a group."""


def _add_switch(add: _Add, flag: str, text: str, *, default: bool = False) -> None:
    text = f"{text} (default {str(default).lower()})"
    add(flag, type=boolean, nargs="?", const=True, default=default, metavar="BOOL", help=text)


def _add_duration(add: _Add, flag: str, default_s: float, text: str) -> None:
    add(flag, type=duration, default=default_s, metavar="DURATION", help=text)


def _add_file(add: _Add, flag: str, text: str) -> None:
    add(flag, metavar="FILE", default="", help=text)


def add_version(add: _Add) -> None:
    """Add kube-scheduler's flag."""
    text = "print the version and exit"
    add("--version", action=_Version, nargs="?", const="true", default=argparse.SUPPRESS, metavar="BOOL", help=text)


def _add_run(run: argparse.ArgumentParser) -> None:
    add = run.add_argument
    add("--config", metavar="FILE", help="KubeSchedulerConfiguration v1; flags override its fields")
    _add_file(
        add,
        "--kubeconfig",
        "kubeconfig of the API server (default: the first of clientConnection.kubeconfig, the service account of the pod,"
        " $KUBECONFIG, ~/.kube/config)",
    )
    add("--master", metavar="URL", default="", help="address of the API server; overrides the one in the kubeconfig")
    add("--kube-api-qps", type=rate, metavar="N", help="requests per second; negative: unlimited")
    add(
        "--kube-api-burst",
        type=partial(number_from, least=0),
        metavar="N",
        help="number of requests that may exceed --kube-api-qps at once",
    )
    again = "an unschedulable pod is retried after this time, even without an event (default 5m0s)"
    _add_duration(add, "--pod-max-in-unschedulable-pods-duration", 300.0, again)
    drain = "time that running bindings and evictions may take after SIGTERM (default 30s)"
    _add_duration(add, "--drain-timeout", 30.0, drain)
    add(
        "--csi-storage-capacity-api-version",
        choices=("auto", "v1", "none"),
        default="auto",
        help="API version of CSIStorageCapacity; auto: v1 if it is served; none: do not check storage capacity"
        " (default auto)",
    )
    profiles = "apply SchedulerProfile objects to the profiles at run time, if the cluster serves them"
    _add_switch(add, "--scheduler-profiles", profiles, default=True)
    _add_switch(add, "--what-if-objects", "answer WhatIf objects, if the cluster serves them", default=True)
    force = "start even if a live Lease of another installation names the same scheduler name"
    _add_switch(add, "--force", force)
    add("--write-config-to", metavar="FILE", help="write the configuration with all defaults to FILE, and exit")
    _add_behaviour(add, "that of the API server, read at start")
    _add_serving(run.add_argument_group("serving").add_argument)
    _add_authentication(run.add_argument_group("authentication and authorization").add_argument)
    _add_election(run.add_argument_group("leader election").add_argument)
    loop = "implementation of the event loop (default uvloop)"
    add("--loop", choices=("uvloop", "asyncio"), default="uvloop", help=loop)
    add("--logging-format", choices=("text", "json"), default="text", help="format of log lines (default text)")
    level = "log level; 2: also one line per bound pod; 4: also debug lines of libraries (default 0)"
    add("-v", "--v", type=int, default=0, metavar="LEVEL", help=level)
    add_version(add)
    add_upstream_flags(run)


def _add_serving(add: _Add) -> None:
    secure = f"port of the HTTPS server; 0: no HTTPS server (default {DEFAULT_PORT})"
    add("--secure-port", type=port, default=DEFAULT_PORT, metavar="PORT", help=secure)
    bind = "IP address of the HTTPS server (default 0.0.0.0: all addresses of the host)"
    add("--bind-address", type=address, default=EVERYWHERE, metavar="IP", help=bind)
    sharing = "set SO_REUSEPORT, so that several processes can listen on --secure-port"
    _add_switch(add, "--permit-port-sharing", sharing)
    pair = "directory with kube-scheduler.crt and kube-scheduler.key; used if they exist and --tls-cert-file is absent"
    add("--cert-dir", metavar="DIR", default="", help=pair)
    _add_file(
        add,
        "--tls-cert-file",
        "serving certificate (PEM), followed by the certificates of its signers; reread when it changes"
        " (default: self-signed, in memory)",
    )
    _add_file(add, "--tls-private-key-file", "private key of --tls-cert-file (PEM)")
    oldest = f"oldest TLS version that is accepted (default {TLS_VERSIONS[0]})"
    add("--tls-min-version", choices=TLS_VERSIONS, default=TLS_VERSIONS[0], help=oldest)
    suites = "cipher suites for TLS 1.2, by Go's names; those of TLS 1.3 are always on (default: OpenSSL's)"
    add("--tls-cipher-suites", type=cipher_suites, default=(), metavar="SUITE,...", help=suites)
    plain = "port for all endpoints on 127.0.0.1 by HTTP, without authentication; 0: no such port (default 0)"
    _add_switch(add, "--ui", "serve the page /ui, which shows pending pods and nodes (docs/ui.md)")
    add("--plain-port", type=port, default=0, metavar="PORT", help=plain)


def _add_authentication(add: _Add) -> None:
    for name, reviews in (("authentication", "TokenReviews"), ("authorization", "SubjectAccessReviews")):
        text = f"kubeconfig of the API server that answers {reviews} (default: the API server of --kubeconfig)"
        _add_file(add, f"--{name}-kubeconfig", text)
    authorities = "certificate authorities that sign client certificates (PEM) (default: those of the cluster)"
    _add_file(add, "--client-ca-file", authorities)
    _add_switch(add, "--authentication-skip-lookup", "do not read the client CA from the cluster")
    tolerate = "start even if the client CA cannot be read"
    _add_switch(add, "--authentication-tolerate-lookup-failure", tolerate, default=True)
    for name, text in (
        ("authentication-token-webhook-cache-ttl", "time for which the result of a TokenReview is cached"),
        ("authorization-webhook-cache-authorized-ttl", "time for which a granted SubjectAccessReview is cached"),
        ("authorization-webhook-cache-unauthorized-ttl", "time for which a denied SubjectAccessReview is cached"),
    ):
        _add_duration(add, f"--{name}", 10.0, f"{text} (default 10s)")
    public = "paths that need no authorization; a * at the end matches every rest"
    public = f"{public} (default {','.join(ALWAYS_ALLOWED)})"
    add("--authorization-always-allow-paths", type=paths, default=ALWAYS_ALLOWED, metavar="PATH,...", help=public)


def _add_election(add: _Add) -> None:
    elect = "only the replica that holds the Lease schedules (default true)"
    add(
        "--leader-elect", dest=f"{ELECTION}leaderElect", type=boolean, nargs="?", const=True, metavar="BOOL", help=elect
    )
    expiry = "another replica may take a Lease that was not renewed for this time (default 15s)"
    renewal = "the leader exits if it could not renew the Lease for this time (default 10s)"
    retry = "time between two attempts to acquire or renew the Lease (default 2s)"
    lock = "kind of the lock; leases is the only one (default leases)"
    for name, field, read, metavar, text in (
        ("lease-duration", "leaseDuration", positive_duration, "DURATION", expiry),
        ("renew-deadline", "renewDeadline", positive_duration, "DURATION", renewal),
        ("retry-period", "retryPeriod", positive_duration, "DURATION", retry),
        ("resource-lock", "resourceLock", non_empty, "NAME", lock),
        ("resource-name", "resourceName", non_empty, "NAME", "name of the Lease (default kubestow)"),
        ("resource-namespace", "resourceNamespace", non_empty, "NAME", "namespace of the Lease (default kube-system)"),
    ):
        add(f"--leader-elect-{name}", dest=f"{ELECTION}{field}", type=read, metavar=metavar, help=text)


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
    formats = "format of the result; wide: with volumes, devices and scores; html: the page /ui (default table)"
    add("-o", "--output", choices=("table", "wide", "json", "html"), default="table", help=formats)
    pending = "pod that may stay pending; a glob; may be repeated"
    add("--expect-pending", action="append", default=[], metavar="NS/NAME", help=pending)
    add("--explain", action="store_true", help="explain pending pods, and print changes after which they would fit")
    _add_simulated_daemon(add)
    seeds = "simulate with N seeds (at most 10000), from --seed on, and print in how many of them everything fits"
    add("--seeds", type=partial(count, most=_SEEDS_MAX), metavar="N", help=seeds)
    _add_duration(add, "--timeout", 120.0, "end the simulation after this time (default 2m0s)")
    add("--config", metavar="FILE", help="KubeSchedulerConfiguration v1")
    add("--keep-scheduler-names", action="store_true", help="do not schedule pods of default-scheduler")
    _add_behaviour(add, f"that of the cluster with --from-cluster, else {DEFAULT_VERSION}")
    _add_cluster(simulate.add_argument_group("input from a cluster").add_argument)
    add_changes(simulate.add_argument_group("changes of the cluster, whose effect is printed").add_argument)


def _add_cluster(add: _Add) -> None:
    from_cluster = "read the objects of a cluster; objects of FILE are added or replace them"
    add("--from-cluster", action="store_true", help=from_cluster)
    add_kubeconfig(add)
    only = "simulate only pending pods and workloads of this namespace; may be repeated"
    add("-n", "--namespace", type=non_empty, action="append", default=[], metavar="NS", help=only)
    add("--allow-partial", action="store_true", help="go on without the objects that the user may not list")
    add("--save", type=non_empty, metavar="FILE", help="write the objects of the cluster; gzip if the name ends in .gz")
    dump = "print the kubectl command that reads the same objects, and exit"
    add("--print-dump-command", action="store_true", help=dump)


def _add_simulated_daemon(add: _Add) -> None:
    seed = "choose between equal nodes, and make every other draw, by this number (default 0)"
    add("--seed", type=partial(number_from, least=0), default=0, metavar="N", help=seed)
    level = "log level of the daemon, 0 or above (default: no log)"
    add("-v", "--v", type=int, default=_QUIET, metavar="LEVEL", help=level)


def _add_record(add: _Add) -> None:
    add("file", type=non_empty, metavar="FILE", help="new file for the recording, compressed by gzip")
    add("--for", dest="duration", type=duration, metavar="DURATION", help="end after this time (default: when stopped)")
    limit = "end when the file has this size, such as 500Mi (default 1Gi)"
    add("--max-size", type=_size, default=2**30, metavar="SIZE", help=limit)
    add_kubeconfig(add)
    add("--allow-partial", action="store_true", help="go on without the kinds that the user may not list and watch")


def _add_replay(add: _Add) -> None:
    add("file", type=non_empty, metavar="FILE", help="a file that `kubestow record` wrote")
    config = "KubeSchedulerConfiguration v1; given twice, both are replayed and compared (default: that of Kubestow)"
    add("--config", action="append", default=[], metavar="FILE", help=config)
    versions = f"version of kube-scheduler whose behaviour is used: {_or(VERSIONS)}; may be given twice"
    add("--emulated-version", action="append", type=emulated_version, metavar="VERSION", help=versions)
    add("--min-compatibility-version", type=min_compatibility_version, metavar="VERSION", help=_OLDEST)
    names = "recorded scheduler whose pods are replayed; may be repeated (default: those with the names of profiles)"
    add("--scheduler-name", type=non_empty, action="append", default=[], metavar="NAME", help=names)
    speed = "max, or how many seconds of the recording pass in a second (default max)"
    add("--speed", type=_speed, metavar="max|N", help=speed)
    _add_simulated_daemon(add)
    add("--pool-label", default="", metavar="KEY", help="label of nodes; the use of each of its values is shown, too")
    add("-o", "--output", choices=("text", "json"), default="text", help="format of the result (default text)")
    add("--html", type=non_empty, metavar="FILE", help="write a page with pictures to FILE")
    _add_gates(add)


def _size(text: str) -> int:
    """Parse bytes, as a quantity of Kubernetes."""
    from scheduler.api.quantity import parse

    try:
        size = parse(text).value
    except ValueError:
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"must be a size in bytes such as 500Mi, got {text!r}")
    return size


def _speed(text: str) -> float | None:
    """Parse `max`, which is None, or a positive number."""
    if text == "max":
        return None
    speed = rate(text)
    if speed <= 0:
        raise argparse.ArgumentTypeError(f"must be max or a positive number, got {text!r}")
    return speed


def _add_gates(add: _Add) -> None:
    profile = "accept a profile named default-scheduler; only for clusters without kube-scheduler"
    _add_switch(add, "--allow-default-scheduler", profile)
    text = "kube-scheduler's feature gates; may be repeated"
    add("--feature-gates", action=MergeGates, type=feature_gates, default={}, metavar="NAME=BOOL,...", help=text)


def _add_behaviour(add: _Add, default: str) -> None:
    """Add the flags that choose among kube-scheduler's behaviours. `default` says what the version is without its flag."""
    _add_gates(add)
    text = f"version of kube-scheduler whose defaults and behaviour are used: {_or(VERSIONS)} (default: {default})"
    add("--emulated-version", type=emulated_version, metavar="VERSION", help=text)
    add("--min-compatibility-version", type=min_compatibility_version, metavar="VERSION", help=_OLDEST)
