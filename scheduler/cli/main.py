"""The command line: `kubestow run`, `simulate`, `check-config`, `record`, `replay`, `explain`, `what-if`, `version`, and more.

`run` takes kube-scheduler's flags, as Go programs take them (`--flag=value`, `--flag value`, `--flag=true`). The modules
that a command needs are imported when it runs: `version` and `--help` load no library. Exit codes: 0 success, 1 refused or
failed, 2 wrong usage or manifests that cannot be used, 130 interrupted, 141 if the reader of the output has gone. `explain`,
`what-if` and `ui` have other ones.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from scheduler.cli.client_flags import MoreCommands
from scheduler.cli.closed_pipe import until_closed
from scheduler.cli.flags import ELECTION, parser, version_text
from scheduler.config.errors import PluginLoadError
from scheduler.config.types import EVERYWHERE, RunOptions, SecureServing
from scheduler.core.feature_gates import DEFAULT_VERSION, GATES, VERSIONS

if TYPE_CHECKING:
    from scheduler.config.errors import ConfigError
    from scheduler.config.types import Configuration
    from simulator import simulate


_WITH_PLAIN_PORT: Final = frozenset({EVERYWHERE, "::", "127.0.0.1"})
"""Values of --bind-address that include the address of --plain-port."""


class CommandError(Exception):
    """The command is refused or failed. The message is for the user; it may have several lines."""


def main(argv: Sequence[str] | None = None, more: MoreCommands | None = None) -> int:
    """Run one command and return its exit code; without a command print the help. Wrong usage raises SystemExit(2)."""
    return until_closed(partial(_main, argv, more or MoreCommands()))


def _main(argv: Sequence[str] | None, more: MoreCommands) -> int:
    whole = parser(more)
    arguments = whole.parse_args(argv)
    if arguments.command is None:
        whole.print_help()
        return 0
    commands = {
        "run": _run,
        "simulate": _simulate,
        "check-config": _check_config,
        "record": _record,
        "replay": _replay,
        **CLIENT_COMMANDS,
        **more.run,
        "version": print_version,
    }
    return run_command(commands, arguments)


def run_command(commands: Mapping[str, Callable[[argparse.Namespace], int]], arguments: argparse.Namespace) -> int:
    """Run the command of the arguments and return its exit code."""
    threshold = gc.get_threshold()
    if arguments.command not in {"completion", "version"}:
        prepare_imports()
    try:
        return commands[arguments.command](arguments)
    except CommandError as refused:
        print(refused, file=sys.stderr)
        return 1
    except PluginLoadError as wrong:
        print(f"kubestow: {wrong}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        gc.set_threshold(*threshold)


def prepare_imports() -> None:
    """Make the libraries that a command imports load faster, and set variables that they read.

    A uid without an entry in the password file has no home directory. numpy's linear algebra is not used, so its
    threads would only cost memory and time. Imports make many objects and little garbage, so none is collected before
    the daemon sets its own thresholds. structlog imports rich for tracebacks that the logs do not use, because they
    show credentials.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(0)
    if not {"rich", "structlog"} & sys.modules.keys():
        sys.modules["rich"] = None  # type: ignore[assignment]
        importlib.import_module("structlog")
        del sys.modules["rich"]
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


# -- run -------------------------------------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    options = _first_options(arguments)
    if arguments.write_config_to:
        _write_config(arguments.write_config_to, options.config)
        return 0
    import structlog

    from scheduler.metrics import logs

    logs.setup(arguments.logging_format, arguments.v)
    log = structlog.get_logger("scheduler.cli.main")
    for name, why in _unknown_gates(arguments).items():
        log.warning("feature gate has no effect", gate=name, reason=why)
    for name, why in arguments.without_effect.items():
        log.warning("flag has no effect", flag=f"--{name}", reason=why)
    from scheduler.config.errors import ConfigErrors
    from scheduler.daemon.app import run_daemon
    from scheduler.kube.client_config import SettingsError
    from scheduler.server.serving import CannotListen, CertificateError, LookupFailed

    _check_plugins(options.config, arguments.config or "kubestow")  # a wrong plugin is refused before the first request
    for_version = None if arguments.emulated_version else partial(_options_for_server, arguments, options)
    try:
        if arguments.loop == "asyncio":
            import asyncio

            return asyncio.run(run_daemon(options, for_version=for_version))
        import uvloop

        return uvloop.run(run_daemon(options, for_version=for_version))
    except ConfigErrors as wrong:
        _refuse(arguments.config or "kubestow", wrong.errors)
    except (CannotListen, CertificateError, LookupFailed, SettingsError) as wrong:
        raise CommandError(f"kubestow: {wrong}") from wrong


def _first_options(arguments: argparse.Namespace) -> RunOptions:
    """Return the options for the given version, else for the first version that accepts the file and the flags.

    A file may be valid in one version only. Raises CommandError, with the mistakes in DEFAULT_VERSION, if it is in none.
    """
    if arguments.emulated_version:
        return _options(arguments, arguments.emulated_version)
    try:
        return _options(arguments, DEFAULT_VERSION)
    except CommandError:
        for version in VERSIONS:
            if version != DEFAULT_VERSION:
                with contextlib.suppress(CommandError):
                    return _options(arguments, version)
        raise


def _options_for_server(arguments: argparse.Namespace, usable: RunOptions, version: str) -> RunOptions:
    """Return the options for the API server's version, or for the newest one before it that takes the file and the flags.

    An upgrade of the API server alone must not stop a daemon that ran before; the log says what was refused. `usable` are
    returned if only a newer version takes them.
    """
    try:
        return _options(arguments, version)
    except CommandError as refused:
        import structlog

        for before in reversed(VERSIONS[: VERSIONS.index(version)]):
            with contextlib.suppress(CommandError):
                usable = _options(arguments, before)
                break
        structlog.get_logger("scheduler.cli.main").warning(
            "the configuration is refused in the version of the API server",
            error=str(refused),
            api_server=version,
            emulated_version=usable.emulated_version,
        )
        return usable


def _options(arguments: argparse.Namespace, version: str) -> RunOptions:
    config = _configuration(arguments, gates=_gates(arguments, version))
    limits = {"qps": arguments.kube_api_qps, "burst": arguments.kube_api_burst}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    client = dataclasses.replace(config.client_connection, **given)
    return RunOptions(
        config=dataclasses.replace(config, client_connection=client),
        emulated_version=version,
        kubeconfig=arguments.kubeconfig or client.kubeconfig,
        master=arguments.master,
        port=arguments.plain_port or None,
        secure=_secure(arguments),
        drain_timeout_s=arguments.drain_timeout,
        csi_storage_capacity_api_version=arguments.csi_storage_capacity_api_version,
        max_in_unschedulable_s=arguments.pod_max_in_unschedulable_pods_duration,
        scheduler_profiles=arguments.scheduler_profiles,
        what_if_objects=arguments.what_if_objects,
        is_forced=arguments.force,
        serves_ui=arguments.ui,
    )


def _gates(arguments: argparse.Namespace, version: str) -> frozenset[str]:
    """Return the feature gates that are on in the version. Raises CommandError for a value that the version refuses."""
    from scheduler.config.load import gates_on

    try:
        oldest = arguments.min_compatibility_version or ""
        return gates_on(arguments.feature_gates, version, min_compatibility_version=oldest)
    except ValueError as wrong:
        flag = "min-compatibility-version" if str(wrong).startswith("minCompatibilityVersion") else "feature-gates"
        raise CommandError(f"--{flag}: {wrong}") from None


def _unknown_gates(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the given gates that have no effect, each with the reason."""
    from scheduler.config.fields import suggestion

    unknown = sorted(arguments.feature_gates.keys() - GATES.keys())
    return {name: f"unknown{suggestion(name, tuple(GATES))}" for name in unknown}


def _print_unknown_gates(arguments: argparse.Namespace) -> None:
    for name, why in _unknown_gates(arguments).items():
        print(f"kubestow: feature gate {name} has no effect: {why}", file=sys.stderr)


def _secure(arguments: argparse.Namespace) -> SecureServing | None:
    if not arguments.secure_port:
        return None
    if arguments.plain_port == arguments.secure_port and arguments.bind_address in _WITH_PLAIN_PORT:
        raise CommandError(f"--plain-port and --secure-port: both are {arguments.secure_port}; give two ports")
    cert_file, key_file = arguments.tls_cert_file, arguments.tls_private_key_file
    if bool(cert_file) != bool(key_file):
        raise CommandError("--tls-cert-file and --tls-private-key-file: give both, or neither")
    if arguments.cert_dir and not cert_file:
        cert_file, key_file = _pair_in(Path(arguments.cert_dir))
    return SecureServing(
        host=arguments.bind_address,
        port=arguments.secure_port,
        shares_port=arguments.permit_port_sharing,
        cert_file=cert_file,
        key_file=key_file,
        min_tls=arguments.tls_min_version,
        cipher_suites=arguments.tls_cipher_suites,
        authentication_kubeconfig=arguments.authentication_kubeconfig,
        authorization_kubeconfig=arguments.authorization_kubeconfig,
        client_ca_file=arguments.client_ca_file,
        skips_lookup=arguments.authentication_skip_lookup,
        tolerates_lookup_failure=arguments.authentication_tolerate_lookup_failure,
        token_ttl_s=arguments.authentication_token_webhook_cache_ttl,
        allowed_ttl_s=arguments.authorization_webhook_cache_authorized_ttl,
        denied_ttl_s=arguments.authorization_webhook_cache_unauthorized_ttl,
        always_allow_paths=arguments.authorization_always_allow_paths,
    )


def _pair_in(directory: Path) -> tuple[str, str]:
    """Return kube-scheduler's certificate and key if both exist, else empty names: the certificate is then self-signed."""
    certificate, key = directory / "kube-scheduler.crt", directory / "kube-scheduler.key"
    return (str(certificate), str(key)) if certificate.exists() and key.exists() else ("", "")


def _configuration(arguments: argparse.Namespace, *, gates: frozenset[str]) -> Configuration:
    """Return the file's configuration or the default one, with the flags of leader election.

    Raises CommandError with one line per mistake.
    """
    from scheduler.config import load
    from scheduler.config.errors import ConfigErrors

    given = {name: value for name, value in vars(arguments).items() if value is not None}
    election = {name.removeprefix(ELECTION): given[name] for name in given if name.startswith(ELECTION)}
    options: load.ReadOptions = {
        "allow_default_scheduler": arguments.allow_default_scheduler,
        "feature_gates": gates,
        "leader_election": election,
    }
    try:
        if not arguments.config:
            return load.default(election, feature_gates=gates)
        return load.load(arguments.config, **options)
    except ConfigErrors as wrong:
        if not arguments.config:
            _refuse("flags", wrong.errors)
        from scheduler.cli.check_config import examine_file

        _, _, errors = examine_file(arguments.config, **options)
        _refuse(arguments.config, errors or wrong.errors)


def _refuse(file: str, errors: Sequence[ConfigError]) -> NoReturn:
    from scheduler.cli.check_config import lines_of

    raise CommandError("\n".join(lines_of(file, errors))) from None


def _write_config(path: str, configuration: Configuration) -> None:
    from scheduler.config.document import write_document
    from scheduler.config.dump import to_document

    try:
        Path(path).write_text(write_document(to_document(configuration)), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--write-config-to: {path}: {error.strerror}") from error


# -- the other commands ----------------------------------------------------------------------------------------------------


def _check_config(arguments: argparse.Namespace) -> int:
    from scheduler.cli.check_config import check_file

    version = arguments.emulated_version or DEFAULT_VERSION
    gates, is_allowed = _gates(arguments, version), arguments.allow_default_scheduler
    _print_unknown_gates(arguments)
    codes = [
        check_file(file, allow_default_scheduler=is_allowed, version=version, gates=gates)
        for file in dict.fromkeys(arguments.files)
    ]
    return max(codes)


def _check_plugins(configuration: Configuration, file: str) -> None:
    from scheduler.config.errors import ConfigErrors
    from scheduler.profiles.build import build_profiles

    try:
        build_profiles(configuration)
    except ConfigErrors as wrong:
        _refuse(file, wrong.errors)


def _simulate(arguments: argparse.Namespace) -> int:
    if arguments.print_dump_command:
        from simulator.simulate.input.dump import dump_command

        print(dump_command())
        return 0
    if alone := _cluster_flag(arguments):
        print(f"kubestow simulate: {alone} has an effect only with --from-cluster", file=sys.stderr)
        return 2
    several = "--nodes-needed" if arguments.nodes_needed else "--seeds" if arguments.seeds else ""
    if arguments.seeds and arguments.nodes_needed:
        print("kubestow simulate: --seeds cannot be used with --nodes-needed; use --seed", file=sys.stderr)
        return 2
    if several and (arguments.explain or arguments.output in {"html", "wide"}):
        one = "--explain" if arguments.explain else f"-o {arguments.output}"
        hint = "; use --seed" if arguments.seeds else ""
        why = f"{one} cannot be used with {several}, which prints no single outcome{hint}"
        print(f"kubestow simulate: {why}", file=sys.stderr)
        return 2
    from scheduler.metrics import logs
    from simulator import simulate

    configuration, daemon = _simulated(arguments)
    logs.setup("text", arguments.v)
    rules = simulate.ReadOptions(
        scheduler_names=tuple(profile.scheduler_name for profile in configuration.profiles),
        keeps_scheduler_names=arguments.keep_scheduler_names,
        expect_pending=tuple(name for text in arguments.expect_pending for name in text.split(",")),
        timeout_s=arguments.timeout,
    )
    cluster = simulate.ClusterOptions(
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        namespaces=tuple(arguments.namespace),
        allows_partial=arguments.allow_partial,
    )
    asked = simulate.SimulateArguments(
        files=(*arguments.files, *arguments.filename),
        output=arguments.output,
        rules=rules,
        is_recursive=arguments.recursive,
        validate=arguments.validate,
        is_strict=arguments.strict,
        cluster=cluster if arguments.from_cluster else None,
        save_to=arguments.save or "",
        explains=arguments.explain,
        emulated_version=arguments.emulated_version or "",
        seed=arguments.seed,
        seeds=arguments.seeds,
        changes=simulate.Changes.of(arguments.add_node_like, arguments.drain, arguments.cordon, arguments.scale),
        nodes_like=arguments.nodes_needed or "",
    )
    return simulate.main(asked, daemon)


def _simulated(
    arguments: argparse.Namespace,
) -> tuple[Configuration, simulate.DaemonFor]:
    """Return the configuration, and what creates the daemon."""
    from simulator import simulate

    first = arguments.emulated_version or DEFAULT_VERSION
    configuration = _configuration(arguments, gates=_gates(arguments, first))
    _print_unknown_gates(arguments)
    _print_called_extenders(configuration)
    _check_plugins(configuration, arguments.config or "kubestow")  # mistakes are reported before anything starts

    def configuration_for(version: str) -> Configuration:
        return configuration if version == first else _configuration(arguments, gates=_gates(arguments, version))

    return configuration, simulate.daemons(configuration_for)


def _record(arguments: argparse.Namespace) -> int:
    from scheduler.metrics import logs
    from simulator.replay import command

    logs.setup("text", 0)
    return command.record_main(
        command.RecordOptions(
            arguments.file,
            duration_s=arguments.duration,
            size_max_bytes=arguments.max_size,
            kubeconfig=arguments.kubeconfig,
            context=arguments.context,
            allows_partial=arguments.allow_partial,
        )
    )


def _replay(arguments: argparse.Namespace) -> int:
    files, versions = arguments.config or [None], arguments.emulated_version or [DEFAULT_VERSION]
    from simulator.replay import command

    runs = max(len(files), len(versions))
    if runs > command.REPLAYS_MAX or min(len(files), len(versions)) not in {1, runs}:
        print("kubestow replay: --config and --emulated-version: give each of them at most twice", file=sys.stderr)
        return 2
    from scheduler.metrics import logs

    candidates = []
    for at in range(runs):
        file, version = files[min(at, len(files) - 1)], versions[min(at, len(versions) - 1)]
        one = argparse.Namespace(**(vars(arguments) | {"config": file, "emulated_version": version}))
        configuration = _configuration(one, gates=_gates(one, version))
        _print_called_extenders(configuration)
        _check_plugins(configuration, file or "kubestow")
        candidates.append(command.Candidate.of(configuration, version, file or ""))
    _print_unknown_gates(arguments)
    logs.setup("text", arguments.v)
    return command.replay_main(
        command.ReplayArguments(
            arguments.file,
            candidates,
            scheduler_names=tuple(arguments.scheduler_name),
            output=arguments.output,
            html=arguments.html or "",
            seed=arguments.seed,
            speed=arguments.speed,
            pool_label=arguments.pool_label,
        )
    )


def _print_called_extenders(configuration: Configuration) -> None:
    """Name the extenders and the verbs that a simulation calls."""
    for each in configuration.extenders:
        if verbs := ", ".join(filter(None, (each.filter_verb, each.prioritize_verb, each.preempt_verb))):
            note = f"note: the extender {each.url_prefix} is called ({verbs}) and never to bind"
            print(f"{note}; what it writes in these calls is no part of the simulation", file=sys.stderr)


def _cluster_flag(arguments: argparse.Namespace) -> str:
    """Return a flag that needs --from-cluster and does not have it; "" if there is none."""
    flags = ("context", "kubeconfig", "namespace", "allow_partial", "save")
    given = (f"--{flag.replace('_', '-')}" for flag in flags if getattr(arguments, flag))
    return "" if arguments.from_cluster else next(given, "")


def _explain(arguments: argparse.Namespace) -> int:
    from scheduler.cli import cluster_commands

    return cluster_commands.explain(arguments)


def _what_if(arguments: argparse.Namespace) -> int:
    from scheduler.cli import cluster_commands

    if cluster_commands.is_plan(arguments):
        return _plan(arguments)
    if not arguments.cluster:
        return cluster_commands.what_if(arguments)
    from scheduler.cli.debug_request import MalformedInput
    from scheduler.explain.manifests import WrongRequest
    from scheduler.explain.what_if import decoded
    from scheduler.metrics import logs
    from simulator import simulate

    try:
        question = decoded(cluster_commands.offline_question(arguments))
    except (MalformedInput, WrongRequest) as mistake:
        return cluster_commands.fail(arguments, str(mistake), cluster_commands.MALFORMED)
    configuration, daemon = _simulated(arguments)
    logs.setup("text", cluster_commands.QUIET)
    names = tuple(profile.scheduler_name for profile in configuration.profiles)
    rules = simulate.ReadOptions(scheduler_names=names, timeout_s=arguments.timeout)
    output: Literal["json", "table"] = "json" if arguments.output == "json" else "table"
    asked = simulate.SimulateArguments(tuple(arguments.cluster), output=output, rules=rules, question=question)
    return simulate.main(asked, daemon)


def _plan(arguments: argparse.Namespace) -> int:
    """Answer what-if for all pods of the cluster, by a simulation with the configuration of the running scheduler."""
    import tempfile

    from scheduler.cli import cluster_commands
    from scheduler.cli.debug_request import MalformedInput
    from scheduler.metrics import logs
    from simulator import simulate

    with tempfile.TemporaryDirectory() as directory:
        try:
            cluster_commands.check_plan(arguments)
            if not arguments.cluster:
                _take_configuration(arguments, Path(directory) / "configz.json")
        except MalformedInput as mistake:
            return cluster_commands.fail(arguments, str(mistake), cluster_commands.MALFORMED)
        configuration, daemon = _simulated(arguments)
        logs.setup("text", cluster_commands.QUIET)
        names = tuple(profile.scheduler_name for profile in configuration.profiles)
        scale = [(kind, found or arguments.namespace or "", *rest) for kind, found, *rest in arguments.scale]
        cluster = simulate.ClusterOptions(
            kubeconfig=arguments.kubeconfig, context=arguments.context, allows_partial=arguments.allow_partial
        )
        asked = simulate.SimulateArguments(
            files=(*arguments.cluster, *arguments.filename),
            output="json" if arguments.output == "json" else "table",
            rules=simulate.ReadOptions(scheduler_names=names, timeout_s=arguments.timeout),
            cluster=None if arguments.cluster else cluster,
            emulated_version=arguments.emulated_version,
            changes=simulate.Changes.of(arguments.add_node_like, arguments.drain, arguments.cordon, scale),
            nodes_like=arguments.nodes_needed or "",
            prints_plan_only=True,
        )
        return _EXIT_CODES_OF_PLANS[simulate.main(asked, daemon)]


def _take_configuration(arguments: argparse.Namespace, file: Path) -> None:
    """Let the arguments name the configuration of the running scheduler. A note says why it is the default one instead."""
    from scheduler.cli import cluster_commands
    from scheduler.cli.leader import NoAnswer

    try:
        document, version, gates = cluster_commands.running_configuration(arguments)
        file.write_bytes(document)
        running = argparse.Namespace(**vars(arguments))
        running.config, running.emulated_version, running.feature_gates = str(file), version, gates
        running.allow_default_scheduler = True
        _check_plugins(_configuration(running, gates=_gates(running, version)), "the configuration of the scheduler")
    except (NoAnswer, CommandError, PluginLoadError) as why:
        note = "note: the default configuration is used, because that of the scheduler cannot be"
        print(f"{arguments.prog}: {note} {'read' if isinstance(why, NoAnswer) else 'used'}: {why}", file=sys.stderr)
    else:
        vars(arguments).update(vars(running))


_EXIT_CODES_OF_PLANS: Final[Mapping[int, int]] = {0: 0, 1: 2, 2: 3, 5: 5}
"""Exit code of a simulation → that of what-if."""


def _ui(arguments: argparse.Namespace) -> int:
    from scheduler.cli import cluster_commands

    return cluster_commands.ui(arguments)


CLIENT_COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "explain": _explain,
    "what-if": _what_if,
    "ui": _ui,
}
"""The commands that kubectl's plugin has, too."""


def print_version(_: argparse.Namespace) -> int:
    """Print the version."""
    print(version_text())
    return 0
