"""The command line: `kubestow run | simulate | check-config | version`, with kube-scheduler's flags for `run`.

Flags may be written as Go programs take them (`--flag=value`, `--flag value`, `--flag=true`). What a command needs is
imported when it runs, so that `check-config` does not wait for an event loop. Exit codes: 0 done, 1 refused or failed,
2 wrong usage or unreadable input.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from scheduler import __version__
from scheduler.config.durations import format_duration, parse_duration_s
from scheduler.config.gates import gates_on
from scheduler.config.types import FEATURE_GATES, GATES_ON
from scheduler.options import DEFAULT_PORT, RunOptions

if TYPE_CHECKING:
    from scheduler.config.errors import ConfigErrors
    from scheduler.config.types import Configuration
    from scheduler.framework.profile import Profile

_ELECTION: Final = "leaderElection."
"""Flags of leader election are parsed under the path of the field that they win over."""
_QUIET: Final = -1


class Refused(Exception):
    """The command cannot be carried out. The message is for the user; it may have several lines."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Wrong usage leaves by SystemExit(2), as argparse does."""
    arguments = _parser().parse_args(argv)
    commands = {"run": _run, "simulate": _simulate, "check-config": _check_config, "version": _version}
    try:
        return commands[arguments.command](arguments)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


# -- flags -----------------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubestow", description="A secondary Kubernetes scheduler.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="schedule pods of a cluster", allow_abbrev=False))
    _add_simulate(
        commands.add_parser("simulate", help="schedule the pods of manifests, without a cluster", allow_abbrev=False)
    )
    check = commands.add_parser("check-config", help="check a KubeSchedulerConfiguration", allow_abbrev=False)
    check.add_argument("file", metavar="FILE")
    _allow_default_scheduler(check)
    commands.add_parser("version", help="print the version", allow_abbrev=False)
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    add = run.add_argument
    add("--config", metavar="FILE", help="KubeSchedulerConfiguration v1; flags win over it")
    add("--kubeconfig", metavar="FILE", default="", help="default: the file's, $KUBECONFIG, in-cluster, ~/.kube/config")
    add("--master", metavar="URL", default="", help="the API server, instead of the kubeconfig's")
    add("--kube-api-qps", type=float, metavar="N", help="requests per second; negative: no limit")
    add("--kube-api-burst", type=int, metavar="N")
    add("--bind-address", default="127.0.0.1", metavar="IP", help="of the endpoints; loopback only in this version")
    add("--secure-port", type=_port, default=DEFAULT_PORT, metavar="PORT", help=f"0: none (default {DEFAULT_PORT})")
    add(
        "--pod-max-in-unschedulable-pods-duration",
        type=_duration,
        default=300.0,
        metavar="DURATION",
        help="default 5m0s",
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
    add("--write-config-to", metavar="FILE", help="write the configuration with all defaults, and exit")
    add("--feature-gates", type=_gates, default={}, metavar="NAME=BOOL,...")
    _add_election(run)
    add("--loop", choices=("uvloop", "asyncio"), default="uvloop", help="event loop (default uvloop)")
    add("--logging-format", choices=("text", "json"), default="text")
    add(
        "-v", "--v", type=int, default=0, metavar="LEVEL", help="2: a line per bound pod; 4: libraries' debug lines too"
    )
    _allow_default_scheduler(run)


def _add_election(run: argparse.ArgumentParser) -> None:
    """kube-scheduler's flags."""
    add = run.add_argument_group("leader election").add_argument
    add(
        "--leader-elect",
        dest=f"{_ELECTION}leaderElect",
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
            dest=f"{_ELECTION}{field}",
            type=_some_time,
            metavar="DURATION",
            help=f"default {default}",
        )
    for name, field, default in (
        ("resource-lock", "resourceLock", "leases, the only kind there is"),
        ("resource-name", "resourceName", "kubestow"),
        ("resource-namespace", "resourceNamespace", "kube-system"),
    ):
        add(f"--leader-elect-{name}", dest=f"{_ELECTION}{field}", type=_word, metavar="NAME", help=f"default {default}")


def _add_simulate(simulate: argparse.ArgumentParser) -> None:
    add = simulate.add_argument
    add("files", nargs="+", metavar="FILE", help="manifests, or what `kubectl get -o yaml` printed")
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


def _duration(text: str) -> float:
    """A Go duration, or plain seconds."""
    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, got {text!r}") from None
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, got {text!r}")
    return seconds


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


def _gates(text: str) -> dict[str, bool]:
    gates = {}
    for part in filter(None, text.split(",")):
        name, found, value = part.partition("=")
        if not found:
            raise argparse.ArgumentTypeError(f"must be NAME=true or NAME=false, got {part!r}")
        gates[name.strip()] = _bool(value.strip())
    return gates


# -- run -------------------------------------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    if arguments.write_config_to:
        _write_config(arguments.write_config_to, options.config)
        return 0
    import structlog

    from scheduler.obs import logs

    logs.setup(arguments.logging_format, arguments.v)
    log = structlog.get_logger("scheduler.cli")
    for name in arguments.feature_gates.keys() - FEATURE_GATES.keys():
        log.warning("feature gate is not known and changes nothing", gate=name)
    from scheduler.app import run_daemon
    from scheduler.config.errors import ConfigErrors
    from scheduler.insight.http import CannotListen
    from scheduler.kube.transport import SettingsError

    try:
        if arguments.loop == "asyncio":
            import asyncio

            return asyncio.run(run_daemon(options))
        import uvloop

        return uvloop.run(run_daemon(options))
    except ConfigErrors as wrong:
        _refuse(arguments.config or "kubestow", wrong)
    except (CannotListen, SettingsError) as wrong:
        raise Refused(f"kubestow: {wrong}") from wrong


def _options(arguments: argparse.Namespace) -> RunOptions:
    from scheduler.insight.http import NotLoopback, check_loopback

    try:
        check_loopback(arguments.bind_address)
    except NotLoopback as wrong:
        raise Refused(f"--bind-address: {wrong}") from None
    try:
        gates = gates_on(arguments.feature_gates)
    except ValueError as wrong:
        raise Refused(f"--feature-gates: {wrong}") from None
    config = _configuration(arguments, gates=gates)
    client = config.client_connection
    if arguments.kube_api_qps is not None:
        client = dataclasses.replace(client, qps=arguments.kube_api_qps)
    if arguments.kube_api_burst is not None:
        client = dataclasses.replace(client, burst=arguments.kube_api_burst)
    return RunOptions(
        config=dataclasses.replace(config, client_connection=client),
        kubeconfig=arguments.kubeconfig or client.kubeconfig,
        master=arguments.master,
        host=arguments.bind_address,
        port=arguments.secure_port or None,
        drain_timeout_s=arguments.drain_timeout,
        csi_storage_capacity_api_version=arguments.csi_storage_capacity_api_version,
        max_in_unschedulable_s=arguments.pod_max_in_unschedulable_pods_duration,
    )


def _configuration(arguments: argparse.Namespace, *, gates: frozenset[str] = GATES_ON) -> Configuration:
    """The file's configuration or the default one, with the flags of leader election. Raises Refused, a line per mistake."""
    from scheduler.config import load
    from scheduler.config.errors import ConfigErrors

    given = {name: value for name, value in vars(arguments).items() if value is not None}
    election = {name.removeprefix(_ELECTION): given[name] for name in given if name.startswith(_ELECTION)}
    try:
        if not arguments.config:
            return load.default(election, feature_gates=gates)
        return load.load(
            arguments.config,
            allow_default_scheduler=arguments.allow_default_scheduler,
            feature_gates=gates,
            leader_election=election,
        )
    except ConfigErrors as wrong:
        _refuse(arguments.config or "flags", wrong)


def _refuse(file: str, wrong: ConfigErrors) -> NoReturn:
    raise Refused(
        "\n".join(f"{file}: {error.message if error.path == file else error}" for error in wrong.errors)
    ) from None


def _write_config(path: str, configuration: Configuration) -> None:
    from scheduler.config.document import write_document
    from scheduler.config.dump import to_document

    try:
        Path(path).write_text(write_document(to_document(configuration)), encoding="utf-8")
    except OSError as error:
        raise Refused(f"--write-config-to: {path}: {error.strerror}") from error


# -- the other commands ----------------------------------------------------------------------------------------------------


def _check_config(arguments: argparse.Namespace) -> int:
    arguments.config = arguments.file
    configuration = _configuration(arguments)
    profiles = _profiles(configuration, arguments.file)
    print(f"{arguments.file}: ok")
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for name, profile in profiles.items():
        table = Table("point", "plugins, in order", title=f"profile {name}", title_justify="left")
        for point, plugins in profile.plugins().items():
            table.add_row(point, ", ".join(plugins))
        console.print(table)
        if profile.absent:
            console.print(f"not in this version, and left out: {', '.join(profile.absent)}")
    for path in configuration.ignored:
        console.print(f"accepted without effect: {path}", markup=False, highlight=False)
    return 0


def _profiles(configuration: Configuration, file: str) -> Mapping[str, Profile]:
    from scheduler.config.errors import ConfigErrors
    from scheduler.decisions import build_profiles

    try:
        return build_profiles(configuration)
    except ConfigErrors as wrong:
        _refuse(file, wrong)


def _simulate(arguments: argparse.Namespace) -> int:
    from scheduler.app import Daemon
    from scheduler.config.types import LeaderElection
    from scheduler.obs import logs
    from scheduler.testing import simulate

    configuration = _configuration(arguments)
    logs.setup("text", arguments.v)

    def daemon(master: str) -> simulate.Daemon:
        unlimited = dataclasses.replace(configuration.client_connection, qps=-1.0)
        config = dataclasses.replace(configuration, client_connection=unlimited, leader_election=LeaderElection())
        return Daemon(RunOptions(config=config, master=master, port=0, drain_timeout_s=5.0))

    rules = simulate.Rules(
        scheduler_names=tuple(profile.scheduler_name for profile in configuration.profiles),
        keeps_scheduler_names=arguments.keep_scheduler_names,
        expect_pending=tuple(name for text in arguments.expect_pending for name in text.split(",")),
        timeout_s=arguments.timeout,
    )
    asked = simulate.Asked(tuple(arguments.files), arguments.output, rules)
    return simulate.main(asked, daemon)


def _version(_: argparse.Namespace) -> int:
    print(f"kubestow {__version__} (Python {sys.version.split()[0]}, at kube-scheduler v1.36's behaviour)")
    return 0
