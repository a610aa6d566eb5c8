"""The flags of `kubestow`: kube-scheduler's for `run`, in the spellings that Go programs take.

`--flag=value`, `--flag value`, `--flag=true`. Only parses: what values mean together is the commands' business.

Upstream: cmd/kube-scheduler/app/options/options.go Options
"""

from __future__ import annotations

import argparse
import ipaddress
import math
from typing import Final

from scheduler.config.document import format_duration, parse_duration_s
from scheduler.config.types import ALWAYS_ALLOWED, DEFAULT_PORT, EVERYWHERE, TLS_VERSIONS

ELECTION: Final = "leaderElection."
"""Flags of leader election are parsed under the path of the field that they win over."""
_QUIET: Final = -1


def parser() -> argparse.ArgumentParser:
    """For all commands."""
    whole = argparse.ArgumentParser(
        prog="kubestow", description="A secondary Kubernetes scheduler.", allow_abbrev=False
    )
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="schedule pods of a cluster", allow_abbrev=False))
    _add_simulate(
        commands.add_parser("simulate", help="schedule the pods of manifests, without a cluster", allow_abbrev=False)
    )
    check = commands.add_parser("check-config", help="check a KubeSchedulerConfiguration", allow_abbrev=False)
    check.add_argument("file", type=_word, metavar="FILE")
    _allow_default_scheduler(check)
    commands.add_parser("version", help="print the version", allow_abbrev=False)
    return whole


def _add_run(run: argparse.ArgumentParser) -> None:
    add = run.add_argument
    add("--config", metavar="FILE", help="KubeSchedulerConfiguration v1; flags win over it")
    add("--kubeconfig", metavar="FILE", default="", help="default: the file's, $KUBECONFIG, in-cluster, ~/.kube/config")
    add("--master", metavar="URL", default="", help="the API server, instead of the kubeconfig's")
    add("--kube-api-qps", type=_rate, metavar="N", help="requests per second; negative: no limit")
    add("--kube-api-burst", type=_burst, metavar="N", help="requests at once before that limit counts")
    add(
        "--pod-max-in-unschedulable-pods-duration",
        type=_duration,
        default=300.0,
        metavar="DURATION",
        help="after so long a pod that no event has woken is tried again (default 5m0s)",
    )
    add(
        "--drain-timeout",
        type=_duration,
        default=30.0,
        metavar="DURATION",
        help="for bindings and evictions, on SIGTERM (default 30s)",
    )
    add(
        "--csi-storage-capacity-api-version",
        choices=("auto", "v1", "v1beta1", "none"),
        default="auto",
        help="of CSIStorageCapacity; none: do not ask for room (default auto: the best the server has)",
    )
    add(
        "--scheduler-profiles",
        type=_bool,
        nargs="?",
        const=True,
        default=True,
        metavar="BOOL",
        help="SchedulerProfile objects change profiles while we run, where the cluster has that kind (default true)",
    )
    add(
        "--force",
        type=_bool,
        nargs="?",
        const=True,
        default=False,
        metavar="BOOL",
        help="start although a live Lease of another installation names one of our scheduler names (default false)",
    )
    add("--write-config-to", metavar="FILE", help="write the configuration with all defaults, and exit")
    add("--feature-gates", type=_gates, default={}, metavar="NAME=BOOL,...", help="kube-scheduler's, by its names")
    _add_serving(run)
    _add_authentication(run)
    _add_election(run)
    add("--loop", choices=("uvloop", "asyncio"), default="uvloop", help="event loop (default uvloop)")
    add("--logging-format", choices=("text", "json"), default="text", help="default text")
    add(
        "-v", "--v", type=int, default=0, metavar="LEVEL", help="2: a line per bound pod; 4: libraries' debug lines too"
    )
    _allow_default_scheduler(run)


def _add_serving(run: argparse.ArgumentParser) -> None:
    """kube-scheduler's, and a port for those who need none of it."""
    add = run.add_argument_group("serving").add_argument
    add(
        "--secure-port",
        type=_port,
        default=DEFAULT_PORT,
        metavar="PORT",
        help=f"HTTPS; 0: none (default {DEFAULT_PORT})",
    )
    add(
        "--bind-address",
        type=_address,
        default=EVERYWHERE,
        metavar="IP",
        help="of HTTPS (default 0.0.0.0: all there are)",
    )
    add(
        "--tls-cert-file",
        metavar="FILE",
        default="",
        help="read again when it changes (default: self-signed, in memory)",
    )
    add("--tls-private-key-file", metavar="FILE", default="", help="of the certificate")
    add("--tls-min-version", choices=TLS_VERSIONS, default=TLS_VERSIONS[0], help=f"default {TLS_VERSIONS[0]}")
    add(
        "--plain-port",
        type=_port,
        default=0,
        metavar="PORT",
        help="all endpoints on 127.0.0.1, plain HTTP, for whoever gets there; 0: none (default)",
    )


def _add_authentication(run: argparse.ArgumentParser) -> None:
    """kube-scheduler's flags."""
    add = run.add_argument_group("who may ask").add_argument
    add(
        "--authentication-kubeconfig",
        metavar="FILE",
        default="",
        help="whom to ask about tokens (default: as all else)",
    )
    add(
        "--authorization-kubeconfig", metavar="FILE", default="", help="whom to ask about rights (default: as all else)"
    )
    add("--client-ca-file", metavar="FILE", default="", help="whose client certificates count (default: the cluster's)")
    for name, default, said in (
        ("authentication-skip-lookup", False, "do not look up the cluster's client CA (default false)"),
        ("authentication-tolerate-lookup-failure", True, "start even if it cannot be looked up (default true)"),
    ):
        add(f"--{name}", type=_bool, nargs="?", const=True, default=default, metavar="BOOL", help=said)
    for name, said in (
        ("authentication-token-webhook-cache-ttl", "how long the answer about a token counts"),
        ("authorization-webhook-cache-authorized-ttl", "how long a permission counts"),
        ("authorization-webhook-cache-unauthorized-ttl", "how long a refusal counts"),
    ):
        add(f"--{name}", type=_duration, default=10.0, metavar="DURATION", help=f"{said} (default 10s)")
    add(
        "--authorization-always-allow-paths",
        type=_paths,
        default=ALWAYS_ALLOWED,
        metavar="PATH,...",
        help=f"for everybody; a * at the end stands for anything (default {','.join(ALWAYS_ALLOWED)})",
    )


def _add_election(run: argparse.ArgumentParser) -> None:
    """kube-scheduler's flags."""
    add = run.add_argument_group("leader election").add_argument
    add(
        "--leader-elect",
        dest=f"{ELECTION}leaderElect",
        type=_bool,
        nargs="?",
        const=True,
        metavar="BOOL",
        help="of several replicas only the one that holds the lease schedules (default true)",
    )
    for name, field, default in (
        ("lease-duration", "leaseDuration", "15s: others take over after so long without a renewal"),
        ("renew-deadline", "renewDeadline", "10s: we stop leading, and exit, after so long without one"),
        ("retry-period", "retryPeriod", "2s: between two tries to renew or to acquire"),
    ):
        add(
            f"--leader-elect-{name}",
            dest=f"{ELECTION}{field}",
            type=_some_time,
            metavar="DURATION",
            help=f"default {default}",
        )
    for name, field, default in (
        ("resource-lock", "resourceLock", "leases, the only kind there is"),
        ("resource-name", "resourceName", "kubestow"),
        ("resource-namespace", "resourceNamespace", "kube-system"),
    ):
        add(f"--leader-elect-{name}", dest=f"{ELECTION}{field}", type=_word, metavar="NAME", help=f"default {default}")


def _add_simulate(simulate: argparse.ArgumentParser) -> None:
    add = simulate.add_argument
    add(
        "files",
        nargs="*",
        metavar="FILE",
        help="manifests, or what `kubectl get -o yaml` printed: files, directories, - for standard input; also .gz",
    )
    add("-f", "--filename", action="append", default=[], metavar="FILE", help="the same as FILE; may be repeated")
    add("-R", "--recursive", action="store_true", help="read the directories in directories, too")
    add(
        "--validate",
        type=_validate,
        nargs="?",
        const="strict",
        default="strict",
        metavar="LEVEL",
        help="strict: refuse what an API server refuses; warn: print it and go on; ignore (default strict)",
    )
    add("-o", "--output", choices=("table", "json"), default="table")
    add(
        "--expect-pending",
        action="append",
        default=[],
        metavar="NS/NAME",
        help="may stay unplaced; a glob, may be repeated",
    )
    add("--timeout", type=_duration, default=120.0, metavar="DURATION", help="give up after this long (default 2m)")
    add("--config", metavar="FILE", help="KubeSchedulerConfiguration v1")
    add("--keep-scheduler-names", action="store_true", help="leave pods of default-scheduler alone")
    add("-v", "--v", type=int, default=_QUIET, metavar="LEVEL", help="show the daemon's log, from 0")
    _allow_default_scheduler(simulate)


def _allow_default_scheduler(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-default-scheduler",
        type=_bool,
        nargs="?",
        const=True,
        default=False,
        metavar="BOOL",
        help="accept a profile named default-scheduler: only where kube-scheduler does not run",
    )


def _bool(text: str) -> bool:
    """What Go's strconv.ParseBool takes."""
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")


def _validate(text: str) -> str:
    """kubectl's levels; a boolean stands for the first or the last."""
    if text in {"strict", "warn", "ignore"}:
        return text
    try:
        return "strict" if _bool(text) else "ignore"
    except argparse.ArgumentTypeError:
        message = f"must be strict, warn or ignore, got {text!r}; the value follows a =, as in --validate=warn"
        raise argparse.ArgumentTypeError(message) from None


def _duration(text: str) -> float:
    """A Go duration, or plain seconds."""
    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, got {text!r}") from None
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, got {text!r}")
    return seconds


def _rate(text: str) -> float:
    """Requests a second, or a negative number."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not math.isfinite(rate):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return rate


def _burst(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number, 0 or above, got {text!r}")
    return int(text)


def _some_time(text: str) -> str:
    """A duration that lasts, in Go's form."""
    seconds = _duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError("must be greater than zero")
    return format_duration(seconds)


def _word(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be 0..65535, got {text!r}")
    return int(text)


def _address(text: str) -> str:
    """Of an interface; nothing means all, as in kube-scheduler."""
    try:
        return str(ipaddress.ip_address(text or EVERYWHERE))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an IP address, got {text!r}") from None


def _paths(text: str) -> tuple[str, ...]:
    paths = tuple(f"/{path.removeprefix('/')}" for path in text.split(",")) if text else ()
    for path in paths:
        if "*" in path[:-1]:
            raise argparse.ArgumentTypeError(f"only trailing * allowed in {path!r}")
    return paths


def _gates(text: str) -> dict[str, bool]:
    gates = {}
    for part in filter(None, text.split(",")):
        name, found, value = part.partition("=")
        if not found:
            raise argparse.ArgumentTypeError(f"must be NAME=true or NAME=false, got {part!r}")
        gates[name.strip()] = _bool(value.strip())
    return gates
