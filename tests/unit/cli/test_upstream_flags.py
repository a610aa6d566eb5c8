"""Every flag of kube-scheduler v1.36: it has its meaning, has no effect, or is refused."""

from __future__ import annotations

import argparse
from typing import Final

import pytest

from scheduler.cli.flags import parser

MEANT: Final = "has its meaning"
NO_EFFECT: Final = "has no effect"
REFUSED: Final = "is refused"
FLAGS: Final = {
    "--allow-metric-labels=m,l='v'": NO_EFFECT,
    "--allow-metric-labels-manifest=/f": NO_EFFECT,
    "--authentication-kubeconfig=/f": MEANT,
    "--authentication-skip-lookup": MEANT,
    "--authentication-token-webhook-cache-ttl=1s": MEANT,
    "--authentication-tolerate-lookup-failure": MEANT,
    "--authorization-always-allow-paths=/x": MEANT,
    "--authorization-kubeconfig=/f": MEANT,
    "--authorization-webhook-cache-authorized-ttl=1s": MEANT,
    "--authorization-webhook-cache-unauthorized-ttl=1s": MEANT,
    "--bind-address=::": MEANT,
    "--cert-dir=/d": MEANT,
    "--client-ca-file=/f": MEANT,
    "--config=/f": MEANT,
    "--contention-profiling": NO_EFFECT,
    "--disable-http2-serving": NO_EFFECT,
    "--disabled-metrics=m": NO_EFFECT,
    "--emulated-version=kube=1.37": MEANT,
    "--feature-gates=kube:DRADeviceTaints=true": MEANT,
    "--http2-max-streams-per-connection=7": NO_EFFECT,
    "--kube-api-burst=1": MEANT,
    "--kube-api-content-type=application/json": NO_EFFECT,
    "--kube-api-qps=1": MEANT,
    "--kubeconfig=/f": MEANT,
    "--leader-elect": MEANT,
    "--leader-elect-lease-duration=15s": MEANT,
    "--leader-elect-renew-deadline=10s": MEANT,
    "--leader-elect-resource-lock=leases": MEANT,
    "--leader-elect-resource-name=n": MEANT,
    "--leader-elect-resource-namespace=n": MEANT,
    "--leader-elect-retry-period=2s": MEANT,
    "--log-flush-frequency=5s": NO_EFFECT,
    "--log-json-info-buffer-size=1Ki": NO_EFFECT,
    "--log-json-split-stream": NO_EFFECT,
    "--log-text-info-buffer-size=1Ki": NO_EFFECT,
    "--log-text-split-stream": NO_EFFECT,
    "--logging-format=json": MEANT,
    "--master=http://h": MEANT,
    "--min-compatibility-version=kube=1.35": MEANT,
    "--permit-address-sharing": NO_EFFECT,
    "--permit-port-sharing": MEANT,
    "--pod-max-in-unschedulable-pods-duration=1m": MEANT,
    "--profiling=false": NO_EFFECT,
    "--requestheader-allowed-names=n": REFUSED,
    "--requestheader-client-ca-file=/f": REFUSED,
    "--requestheader-extra-headers-prefix=p": REFUSED,
    "--requestheader-group-headers=h": REFUSED,
    "--requestheader-uid-headers=h": REFUSED,
    "--requestheader-username-headers=h": REFUSED,
    "--secure-port=1": MEANT,
    "--show-hidden-metrics-for-version=1.35": NO_EFFECT,
    "--tls-cert-file=/f": MEANT,
    "--tls-cipher-suites=TLS_AES_128_GCM_SHA256": MEANT,
    "--tls-curve-preferences=29": REFUSED,
    "--tls-min-version=VersionTLS13": MEANT,
    "--tls-private-key-file=/f": MEANT,
    "--tls-sni-cert-key=/c,/k": REFUSED,
    "--v=2": MEANT,
    "--version": MEANT,
    "--vmodule=x=2": NO_EFFECT,
    "--write-config-to=/f": MEANT,
}
"""`tests/e2e/test_upstream_names.py` compares the names with those of the binary."""


def name_of(flag: str) -> str:
    return flag.partition("=")[0]


def given(verdict: str) -> list[str]:
    return [flag for flag, found in FLAGS.items() if found == verdict]


@pytest.mark.parametrize("flag", [flag for flag in given(MEANT) if flag != "--version"])
def test_a_flag_with_its_meaning_changes_the_arguments(flag: str) -> None:
    without, with_it = parser().parse_args(["run"]), parser().parse_args(["run", flag])

    assert with_it.without_effect == {}
    dest = next(action.dest for action in actions() if name_of(flag) in action.option_strings)
    assert hasattr(with_it, dest)
    assert vars(with_it) != vars(without) or flag == "--authentication-tolerate-lookup-failure"  # true is the default


@pytest.mark.parametrize("flag", given(NO_EFFECT))
def test_a_flag_without_effect_is_named_and_nothing_else_changes(flag: str) -> None:
    ours = parser().parse_args(["run", flag, flag])

    assert list(ours.without_effect) == [name_of(flag).removeprefix("--")]
    assert all(ours.without_effect.values())
    assert vars(ours) | {"without_effect": {}} == vars(parser().parse_args(["run"]))


@pytest.mark.parametrize("flag", [*given(REFUSED), "--emulated-version=1.35", "--emulated-version=1.36,kube=1.33",
    "--min-compatibility-version=1.35.2", "--min-compatibility-version=wardle=1.2", "--min-compatibility-version=1.x"])  # fmt: skip
def test_a_refused_flag_says_why(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["run", flag])

    assert ended.value.code == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"kubestow run: error: argument {name_of(flag)}: ")
    assert len(line.partition(f"{name_of(flag)}: ")[2]) > 30


def test_refused_flags_are_not_offered() -> None:
    run = parser().commands["run"]

    assert not set(run.flags()) & {name_of(flag) for flag in given(REFUSED)}
    assert "requestheader" not in run.format_help()


def test_every_flag_of_both_tables_is_in_this_one() -> None:
    ours = {
        "--allow-default-scheduler",
        "--csi-storage-capacity-api-version",
        "--drain-timeout",
        "--force",
        "--help",
        "--loop",
        "--plain-port",
        "--scheduler-profiles",
        "--ui",
        "--what-if-objects",
    }
    known = {option for action in actions() for option in action.option_strings if option.startswith("--")}

    assert known - ours == {name_of(flag) for flag in FLAGS}


def actions() -> list[argparse.Action]:
    return parser().commands["run"]._actions
