"""The command line: flags, exit codes, and what reaches the daemon."""

from __future__ import annotations

import asyncio
import sys
import types
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from scheduler import __version__
from scheduler.cli import main as cli
from scheduler.config import load
from scheduler.config.errors import ConfigError, ConfigErrors
from scheduler.config.types import RunOptions, SecureServing
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.kube.client_config import SettingsError
from scheduler.metrics import logs
from scheduler.server.serving import CannotListen, CertificateError, LookupFailed

GOOD = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 8
clientConnection: {kubeconfig: /from/file, qps: 7, burst: 9}
profiles:
- schedulerName: mine
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A good configuration file."""
    file = tmp_path / "config.yaml"
    file.write_text(GOOD)
    return file


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """What the daemon was started with; it ends at once with exit code 3."""
    options: list[RunOptions] = []

    async def run_daemon(given: RunOptions, **_: object) -> int:
        await asyncio.sleep(0)
        options.append(given)
        return 3

    app = types.ModuleType("scheduler.daemon.app")
    app.run_daemon = run_daemon  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scheduler.daemon.app", app)
    monkeypatch.setattr(logs, "setup", lambda *_, **__: None)
    return options


def run(*argv: str) -> int:
    """`kubestow run` on plain asyncio."""
    return cli.main(["run", "--loop=asyncio", *argv])


def test_defaults(started: list[RunOptions]) -> None:
    """Without flags: HTTPS on kube-scheduler's port, our one profile; the daemon's exit code is the command's."""
    assert run() == 3
    assert started == [RunOptions(config=load.default(), secure=SecureServing())]
    secure = started[0].secure
    assert secure is not None
    assert (secure.host, secure.port, secure.cert_file) == ("0.0.0.0", 10259, "")
    assert (secure.shares_port, secure.cipher_suites, "/livez/*" in secure.always_allow_paths) == (False, (), True)
    assert (started[0].csi_storage_capacity_api_version, started[0].scheduler_profiles) == ("auto", True)


def test_uvloop_is_the_default_loop(monkeypatch: pytest.MonkeyPatch, started: list[RunOptions]) -> None:
    import uvloop

    def fake(main: Any) -> int:
        main.close()
        return 4

    monkeypatch.setattr(uvloop, "run", fake)

    assert cli.main(["run"]) == 4
    assert started == []


SUITES = "TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"
CERTIFICATE = "--tls-cert-file=/c --tls-private-key-file=/k"
SCORING, SCALING = "StorageCapacityScoring", "VolumeLimitScaling"


@pytest.mark.parametrize(("flags", "read"), [
    ("--secure-port=0", {"port": None, "secure": None}),
    ("--secure-port 1234", {"port": None, "secure.port": 1234}),
    ("--plain-port=1234", {"port": 1234, "secure.port": 10259}),
    ("--plain-port=0", {"port": None}),
    ("--plain-port=10259 --bind-address=10.0.0.1", {"port": 10259, "secure.port": 10259}),
    ("--bind-address=::1", {"secure.host": "::1"}),
    ("--bind-address=", {"secure.host": "0.0.0.0"}),
    ("--permit-port-sharing", {"secure.shares_port": True}),
    (f"--tls-cipher-suites={','.join(SUITES)}", {"secure.cipher_suites": SUITES}),
    ("--cert-dir=/nowhere", {"secure.cert_file": "", "secure.key_file": ""}),
    (f"--cert-dir=/nowhere {CERTIFICATE}", {"secure.cert_file": "/c", "secure.key_file": "/k"}),
    (f"{CERTIFICATE} --tls-min-version=VersionTLS13", {"secure.cert_file": "/c", "secure.min_tls": "VersionTLS13"}),
    ("--client-ca-file=/ca", {"secure.client_ca_file": "/ca"}),
    ("--authentication-skip-lookup", {"secure.skips_lookup": True}),
    ("--authentication-tolerate-lookup-failure=false", {"secure.tolerates_lookup_failure": False}),
    ("--authentication-kubeconfig=/n", {"secure.authentication_kubeconfig": "/n"}),
    ("--authorization-kubeconfig=/z", {"secure.authorization_kubeconfig": "/z"}),
    ("--authentication-token-webhook-cache-ttl=1m", {"secure.token_ttl_s": 60.0}),
    ("--authorization-webhook-cache-authorized-ttl=0s", {"secure.allowed_ttl_s": 0.0}),
    ("--authorization-webhook-cache-unauthorized-ttl=2", {"secure.denied_ttl_s": 2.0}),
    ("--authorization-always-allow-paths=/metrics,debug/*,/",
        {"secure.always_allow_paths": ("/metrics", "/debug/*", "/")}),
    ("--authorization-always-allow-paths=", {"secure.always_allow_paths": ()}),
    ("--master=http://127.0.0.1:1", {"master": "http://127.0.0.1:1"}),
    ("--kubeconfig=/k", {"kubeconfig": "/k"}),
    ("--drain-timeout=1m30s", {"drain_timeout_s": 90.0}),
    ("--drain-timeout=7", {"drain_timeout_s": 7.0}),
    ("--scheduler-profiles=false", {"scheduler_profiles": False}),
    ("--what-if-objects=false", {"what_if_objects": False}),
    ("--pod-max-in-unschedulable-pods-duration=10m", {"max_in_unschedulable_s": 600.0}),
    ("--kube-api-qps=-1", {"config.client_connection.qps": -1.0}),
    ("--kube-api-burst 3", {"config.client_connection.burst": 3}),
    ("--leader-elect=false", {"config.leader_election.leader_elect": False}),
    ("--leader-elect", {"config.leader_election.leader_elect": True}),
    ("--leader-elect-lease-duration=1m", {"config.leader_election.lease_duration_s": 60.0}),
    ("--leader-elect-renew-deadline=12.5s", {"config.leader_election.renew_deadline_s": 12.5}),
    ("--leader-elect-retry-period 500ms", {"config.leader_election.retry_period_s": 0.5}),
    ("--leader-elect-resource-name=mine", {"config.leader_election.resource_name": "mine"}),
    ("--leader-elect-resource-namespace=here", {"config.leader_election.resource_namespace": "here"}),
    ("--leader-elect-resource-lock=leases", {"config.leader_election.resource_lock": "leases"}),
    ("--csi-storage-capacity-api-version=none", {"csi_storage_capacity_api_version": "none"}),
    (f"--feature-gates={SCORING}=true,{SCALING}=true,Foo=true",
        {"config.feature_gates": DEVICE_GATES_ON | {SCORING, SCALING}}),
    ("--feature-gates=DRAExtendedResource=false,DRADeviceTaintRules=true,DRAAdminAccess=true",
        {"config.feature_gates": DEVICE_GATES_ON ^ {"DRAExtendedResource", "DRADeviceTaintRules"}}),
    (f"--feature-gates=kube:{SCORING}=true,Foo=true --feature-gates=kube:{SCALING}=true -v=2 --v 4",
        {"config.feature_gates": DEVICE_GATES_ON | {SCORING, SCALING}, "secure.port": 10259}),
    (f"--feature-gates={SCORING}=true --feature-gates={SCORING}=false", {"config.feature_gates": DEVICE_GATES_ON}),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_flags(started: list[RunOptions], flags: str, read: dict[str, Any]) -> None:
    """Each flag, in Go's spellings, reaches the daemon."""
    assert run(*flags.split()) == 3
    assert {path: attrgetter(path)(started[0]) for path in read} == read


def test_flags_win_over_the_file(started: list[RunOptions], config: Path) -> None:
    run(f"--config={config}", "--kube-api-qps=1")
    run(f"--config={config}", "--kubeconfig=/flag")

    first, second = started
    assert (first.kubeconfig, second.kubeconfig) == ("/from/file", "/flag")
    assert (first.config.client_connection.qps, first.config.client_connection.burst) == (1.0, 9)
    assert [profile.scheduler_name for profile in first.config.profiles] == ["mine"]
    run(f"--config={config}", "--leader-elect=false", "--leader-elect-resource-name=other")

    assert (started[2].config.leader_election.leader_elect, first.config.leader_election.leader_elect) == (False, True)
    assert started[2].config.leader_election.resource_name == "other"


@pytest.mark.parametrize(("flags", "said"), [
    (["--leader-elect-renew-deadline=20s"],
        'flags: leaderElection.leaseDuration: Invalid value: "15s": must be greater than `RenewDeadline`'),
    (["--leader-elect-resource-lock=endpoints"],
        'flags: leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"'),
    (["--leader-elect-resource-name=kube-scheduler"], "the cluster's own scheduler's lease"),
    (["--tls-cert-file=/c"], "--tls-cert-file and --tls-private-key-file: give both, or neither"),
    (["--plain-port=10259"], "--plain-port and --secure-port: both are 10259; give two ports"),
    (["--plain-port=1", "--secure-port=1", "--bind-address=127.0.0.1"], "both are 1; give two ports"),
    (["--tls-private-key-file=/k"], "--tls-cert-file and --tls-private-key-file: give both, or neither"),
    (["--feature-gates=DynamicResourceAllocation=false"],
        "--feature-gates: cannot set feature gate DynamicResourceAllocation to false, feature is locked to true"),
    (["--config=/nowhere.yaml"], "/nowhere.yaml: cannot be read: No such file"),
    (["--write-config-to=/nowhere/x"], "--write-config-to: /nowhere/x: No such file"),
], ids=lambda value: value[0] if isinstance(value, list) else "")  # fmt: skip
def test_refused(started: list[RunOptions], capsys: pytest.CaptureFixture[str], flags: list[str], said: str) -> None:
    assert run(*flags) == 1
    assert said in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(("error", "said"), [
    (CannotListen("127.0.0.1:1: taken"), "kubestow: 127.0.0.1:1: taken"),
    (CertificateError("/c: cannot be read"), "kubestow: /c: cannot be read"),
    (LookupFailed("kube-system/x: forbidden"), "kubestow: kube-system/x: forbidden"),
    (SettingsError("kubeconfig /x: no such file"), "kubestow: kubeconfig /x: no such file"),
    (ConfigErrors([ConfigError("profiles[0]", "is odd")]), "kubestow: profiles[0]: is odd"),
], ids=["the port is taken", "no certificate", "no client CA", "no credentials", "an unknown plugin"])  # fmt: skip
@pytest.mark.usefixtures("started")
def test_a_daemon_that_cannot_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    async def run_daemon(*_: RunOptions, **__: object) -> int:
        await asyncio.sleep(0)
        raise error

    monkeypatch.setattr(sys.modules["scheduler.daemon.app"], "run_daemon", run_daemon)

    assert run() == 1
    assert capsys.readouterr().err == said + "\n"


@pytest.mark.parametrize(
    "flag",
    [
        "--secure-port=70000",
        "--plain-port=-1",
        "--bind-address=example.com",
        "--tls-min-version=VersionTLS11",
        "--authorization-always-allow-paths=/a*b",
        "--authentication-token-webhook-cache-ttl=-1s",
        "--drain-timeout=soon",
        "--drain-timeout=-1s",
        "--feature-gates=Foo",
        "--feature-gates=wardle:Foo=true",
        "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA",
        "--version=v1.36.3",
        "--kube-api-qps=nan",
        "--kube-api-burst=-1",
        "--leader-elect=x",
        "--leader-elect-retry-period=0s",
        "--leader-elect-resource-name=",
        "--conf=x",
    ],
)
def test_wrong_usage(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(flag)

    assert ended.value.code == 2
    assert flag.partition("=")[0] in capsys.readouterr().err


UNKNOWN = "kubestow: error: unrecognized arguments: "


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("run --kubeconfg=x", f"{UNKNOWN}--kubeconfg=x; did you mean --kubeconfig?"),
        ("run -kubeconfig=x", f"{UNKNOWN}-kubeconfig=x; did you mean --kubeconfig?"),
        ("run --v=2 --nonsense", f"{UNKNOWN}--nonsense"),
        (
            "run --scheduler-name=mine",
            f"{UNKNOWN}--scheduler-name=mine; set profiles[].schedulerName in the file of --config instead",
        ),
        ("check-config --scheduler-name=mine f", f"{UNKNOWN}--scheduler-name=mine"),
        ("check-config --tls-cert-fil=x f", f"{UNKNOWN}--tls-cert-fil=x"),
        ("--kubeconfig=x run", f"{UNKNOWN}--kubeconfig=x; flags follow the command: kubestow run --kubeconfig"),
        ("rnu", "; did you mean run?"),
        ("check_config", "; did you mean check-config?"),
        ("run --tls-min-version=VersionTLS1.3", "; did you mean VersionTLS13?"),
    ],
)
def test_did_you_mean(argv: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv.split())

    assert ended.value.code == 2
    usage, line = capsys.readouterr().err.splitlines()
    assert usage.startswith("usage: kubestow ")
    assert line == said or (said.startswith(";") and line.endswith(said))


def test_the_suggestion_uses_the_command_line_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubestow", "run", "--drain-timout=1s"])
    with pytest.raises(SystemExit):
        cli.main()

    assert capsys.readouterr().err.endswith("did you mean --drain-timeout?\n")


def test_without_arguments_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0

    said = capsys.readouterr()
    assert said.err == ""
    for word in (
        "run",
        "simulate",
        "check-config",
        "record",
        "replay",
        "explain",
        "what-if",
        "ui",
        "version",
        "exit codes:",
    ):
        assert word in said.out


@pytest.mark.parametrize("command", ["run", "simulate", "check-config", "record", "replay", "explain", "what-if", "ui"])
def test_the_help_of_a_command_has_its_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])

    assert ended.value.code == 0
    assert "exit codes:\n  0 " in capsys.readouterr().out


def test_no_file_is_no_good_file(capsys: pytest.CaptureFixture[str]) -> None:
    """What a script gives whose variable is empty: the defaults are not what it wants to have checked."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["check-config", ""])

    assert ended.value.code == 2
    assert "FILE: must not be empty" in capsys.readouterr().err


EVERY_KIND = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 0
paralelism: 2
percentageOfNodesToScore: many
profiles:
- schedulerName: yes
  plugins:
    filter: {enabled: [{name: Foo}]}
    score: {enabled: [{name: NodeResourceFit}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: Nope}}
  - name: Coscheduling
- schedulerName: b
  plugins: {bind: {disabled: [{name: "*"}]}}
- schedulerName: b
leaderElection: {leaseDuration: 5s, resourceName: kube-scheduler}
leaderElection: {}
"""
THEIR_LINES = (
    "parallelism: Invalid value: 0: should be an integer value greater than zero",
    'paralelism: unknown field, did you mean "parallelism"?',
    'percentageOfNodesToScore: must be an integer, got "many"',
    "profiles[0].schedulerName: the bare word yes is a boolean to some: write true or false, or quote it",
    'profiles[0].plugins.filter.enabled[0].name: unknown plugin "Foo"',
    'profiles[0].plugins.score.enabled[0].name: unknown plugin "NodeResourceFit", did you mean "NodeResourcesFit"?',
    (
        'profiles[0].pluginConfig[0].args.scoringStrategy.type: Unsupported value: "Nope": '
        'supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
    ),
    'profiles[0].pluginConfig[1].name: unknown plugin "Coscheduling", did you mean "GangScheduling"?',
    "profiles[1].plugins.bind: at least one plugin is needed",
    'profiles[2].schedulerName: Duplicate value: "b"',
    "leaderElection: duplicate key in line 20",
    "leaderElection.resourceName: kube-scheduler in kube-system is the cluster's own scheduler's lease",
    'leaderElection.leaseDuration: Invalid value: "5s": must be greater than `RenewDeadline`',
)


@pytest.mark.parametrize("command", ["check-config", "run"])
def test_all_kinds_of_mistakes_are_listed_together(
    started: list[RunOptions], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(EVERY_KIND)

    assert cli.main(["check-config", str(file)] if command == "check-config" else ["run", f"--config={file}"]) == 1
    assert capsys.readouterr().err.splitlines() == [f"{file}: {line}" for line in THEIR_LINES]
    assert started == []


def test_several_files_are_checked(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken, other = tmp_path / "broken.yaml", tmp_path / "other.yaml"
    broken.write_text("kind: [\nx: y: z\n")
    other.write_text(GOOD.replace("parallelism: 8", "parallelism: 0"))

    assert cli.main(["check-config", str(broken), str(other), "/nowhere", str(config)]) == 1
    said = capsys.readouterr()
    first, second, third = said.err.splitlines()
    assert first.startswith(f"{broken}: line 2, column ")
    assert second.startswith(f"{other}: parallelism: ")
    assert third == "/nowhere: cannot be read: No such file or directory"
    assert said.out.startswith(f"{config}: ok\n")


def test_write_config(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"

    assert run(f"--config={config}", f"--write-config-to={out}") == 0
    assert load.load(out) == load.load(config)
    assert yaml.safe_load(out.read_text())["podMaxBackoffSeconds"] == 10


@pytest.mark.parametrize("argv", [["version"], ["--version"], ["run", "--version"], ["run", "--version=raw"]])
def test_version(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if argv == ["version"]:
        assert cli.main(argv) == 0
    else:
        with pytest.raises(SystemExit) as ended:
            cli.main(argv)
        assert ended.value.code == 0
    assert f"kubestow {__version__} " in capsys.readouterr().out


def test_cert_dir_has_the_names_of_kube_scheduler(started: list[RunOptions], tmp_path: Path) -> None:
    """Both files are needed; else the certificate is self-signed."""
    (tmp_path / "kube-scheduler.crt").touch()
    run(f"--cert-dir={tmp_path}")
    (tmp_path / "kube-scheduler.key").touch()
    run(f"--cert-dir={tmp_path}")

    pairs = [(options.secure.cert_file, options.secure.key_file) for options in started if options.secure is not None]
    assert pairs == [("", ""), (f"{tmp_path}/kube-scheduler.crt", f"{tmp_path}/kube-scheduler.key")]


@pytest.mark.usefixtures("started")
def test_what_has_no_effect_is_logged_once() -> None:
    with structlog.testing.capture_logs() as said:
        run("--profiling=false", "--vmodule=a=1", "--profiling", "--feature-gates=DRADeviceTaint=true,Foo=false")

    assert [(line.get("flag") or line.get("gate"), line["log_level"]) for line in said] == [
        ("DRADeviceTaint", "warning"),
        ("Foo", "warning"),
        ("--profiling", "warning"),
        ("--vmodule", "warning"),
    ]
    assert said[0]["reason"] == 'unknown, did you mean "DRADeviceTaints"?'


def test_217_default_scheduler_must_be_allowed(started: list[RunOptions], tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(GOOD.replace("mine", "default-scheduler"))

    assert run(f"--config={file}") == 1
    assert run(f"--config={file}", "--allow-default-scheduler") == 3


def test_check_config(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", str(config)]) == 0

    said = capsys.readouterr().out
    assert said.startswith(f"{config}: ok\nprofile mine")
    assert "\n  filter      NodeUnschedulable, NodeName, " in said
    assert "\n  score       TaintToleration:3, " in said
    assert "accepted without effect: parallelism" in said


SCORING_ON = f"--feature-gates={SCORING}=true"
LOCKED = "--feature-gates: cannot set feature gate DynamicResourceAllocation to false, feature is locked to true\n"
NOT_BUILT = (
    "DRANodeAllocatableResources",
    "DRAListTypeAttributes",
    "DRADeviceCompatibilityGroups",
    "DRADerivedAttributes",
    "DRAOptionalNodeOperations",
)
"""Gates that are off by default in every version of kube-scheduler, and that Kubestow does not have."""
TOO_NEW = "--min-compatibility-version: minCompatibilityVersion version 1.37 is not between [1.33, 1.36]\n"
UNKNOWN_GATE = 'kubestow: feature gate DRADeviceTaint has no effect: unknown, did you mean "DRADeviceTaints"?\n'


@pytest.mark.parametrize(
    ("flags", "code", "is_on", "said"),
    [
        pytest.param([], 0, False, "", id="off by default in 1.36"),
        pytest.param([SCORING_ON], 0, True, "", id="turned on"),
        pytest.param([f"{SCORING_ON},{SCORING}=false"], 0, False, "", id="the last value counts"),
        pytest.param(["--emulated-version=1.37"], 0, True, "", id="on by default in 1.37"),
        pytest.param(["--min-compatibility-version=1.37"], 1, False, TOO_NEW, id="newer than the version"),
        pytest.param(["--feature-gates=DRADeviceTaint=true"], 0, False, UNKNOWN_GATE, id="a gate that does not exist"),
        *(
            pytest.param(
                [f"--feature-gates={gate}=true"],
                0,
                False,
                f"kubestow: feature gate {gate} has no effect: unknown\n",
                id=f"an alpha gate that is not built, {gate}",
            )
            for gate in NOT_BUILT
        ),
        pytest.param(["--feature-gates=DynamicResourceAllocation=false"], 1, False, LOCKED, id="a gate that is locked"),
    ],
)
def test_the_feature_gates_of_check_config(
    config: Path, capsys: pytest.CaptureFixture[str], flags: list[str], code: int, is_on: bool, said: str
) -> None:
    assert cli.main(["check-config", str(config), *flags]) == code
    printed = capsys.readouterr()
    assert (SCORING in printed.out, printed.err) == (is_on, said)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        pytest.param(
            "--seed=" + 5000 * "9", "from 0 on, with at most 19 digits, got '9999999999999999999…'", id="digits"
        ),
        pytest.param(
            "--scale=job/a=" + 5000 * "9", "from 0 on, with at most 19 digits, got '99", id="digits of a size"
        ),
        pytest.param("--seed=x", "--seed: must be a whole number from 0 on, ", id="no number"),
        pytest.param(
            "--seeds=1000000000000", "--seeds: must be a number of 1 to 10000, got '1000000000000'", id="seeds"
        ),
    ],
)
def test_numbers_out_of_range(flag: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["simulate", flag, "file.yaml"])

    assert ended.value.code == 2
    assert said in capsys.readouterr().err
