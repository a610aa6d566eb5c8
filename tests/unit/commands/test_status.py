"""What `kubestow status` makes of the daemon's pages, whatever they contain."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from kubestow.commands.answers import StatusAnswer
from kubestow.commands.pages import READYZ, DaemonPages
from kubestow.commands.prometheus_text import CONDITIONS, Samples
from kubestow.commands.status import METRICS, age_text, as_json, status_of, status_text
from scheduler.cli.leader import Leader
from tests.check.test_doc_commands import ROOT

READY = "[+]ping ok\n[+]unforeseen-errors ok (queue: 1 within the last hour)\nreadyz check passed\n"
BUILD = 'kubestow_build_info{version="9.1",python="3.13"} 1.0\n'
WELL = BUILD + "kubestow_leading 1.0\n"
WALL_S = 1_800_000_000.0
LEADER = Leader("stow", "stow-0", 10259, "n1", since="2027-01-15T07:00:00Z", transitions=1)


def of(ready: str = READY, metrics: str = WELL, **missing: str) -> StatusAnswer:
    texts = {READYZ: ready, METRICS: metrics}
    paths = {path: missing[path.removeprefix("/")] for path in texts if path.removeprefix("/") in missing}
    return status_of(DaemonPages(LEADER, {path: texts[path] for path in texts if path not in paths}, paths))


def test_a_healthy_scheduler() -> None:
    metrics = WELL + (
        'process_start_time_seconds 1.7999e9\nscheduler_pending_pods{queue="active"} 2.0\n'
        'scheduler_schedule_attempts_total{result="scheduled",profile="a"} 3.0\n'
        'scheduler_schedule_attempts_total{result="scheduled",profile="b"} 4.0\n'
        'scheduler_unschedulable_pods{plugin="B",profile="a"} 5.0\n'
        'scheduler_unschedulable_pods{plugin="A",profile="a"} 6.0\n'
        'scheduler_unschedulable_pods{plugin="C",profile="a"} 0.0\n'
        'kubestow_watch_synced{kind="Pod"} 1.0\nkubestow_watch_objects{kind="Pod"} 1.0\n'
        'kubestow_profile_generation{profile="a"} 4.0\n'
    )
    found = of(metrics=metrics)

    assert (found.healthy, found.exit_code) == (True, 0)
    assert status_text(found, WALL_S).splitlines() == [
        "scheduler  healthy, version 9.1",
        "running    for 1d3h",
        "leader     stow/stow-0 on node n1 for 1h, 1 change of the leader so far",
        "profiles   a (SchedulerProfile of generation 4)",
        "informers  1 of 1 kind synced",
        "objects    1 pod",
        "queue      2 active",
        "rejected   6 pods by A, 5 pods by B",
        "attempts   7 scheduled",
        "backlog    0 writes, 0 events, 0 assumed pods",
        "note: unforeseen-errors: queue: 1 within the last hour",
    ]


@pytest.mark.parametrize(
    ("ready", "metrics", "said"),
    [
        pytest.param(
            "[+]ping ok\n[-]leader-election failed: timed out\nreadyz check failed\n",
            WELL,
            "critical: leader-election: timed out",
            id="a check fails",
        ),
        pytest.param(
            READY,
            BUILD + "kubestow_leading 0.0\n",
            "critical: KubestowNoLeader: this replica does not lead; suffers: it schedules no pod",
            id="a standby",
        ),
        pytest.param(
            READY,
            WELL + 'kubestow_watch_down_seconds{kind="Pod"} 15.5\n',
            "warning: KubestowWatchStale: no watch of Pod for 16 s; suffers: decisions use an old list of this kind",
            id="a watch is down",
        ),
        pytest.param(
            READY,
            WELL + "kubestow_volume_ledger_drift_bytes -7.0\n",
            "warning: KubestowLedgerDrift: reservations of storage differ by -7 bytes; "
            "suffers: pods that need storage capacity",
            id="a difference in either direction",
        ),
    ],
)
def test_a_trouble_is_named_with_what_suffers(ready: str, metrics: str, said: str) -> None:
    found = of(ready, metrics)

    assert (found.healthy, found.exit_code) == (False, 1)
    assert said in status_text(found, WALL_S).splitlines()


def test_the_limits_are_not_reached() -> None:
    quiet = 'kubestow_watch_down_seconds{kind="Pod"} 15.0\nkubestow_volume_ledger_drift_bytes 0.0\n'

    assert of(metrics=WELL + quiet).troubles == ()


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda each: each.alert)
def test_a_condition_is_that_of_the_alert(condition: Any) -> None:
    groups = yaml.safe_load((ROOT / "deploy/helm/files/rules.yaml").read_text())["groups"]
    alerts = {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}
    rule = alerts[condition.alert]
    expression = rule["expr"]

    assert condition.severity == rule["labels"]["severity"]
    assert condition.metric in expression
    assert all(f'{name}="{value}"' in expression for name, value in condition.labels.items())
    compared, limit = re.findall(r"(==|!=|>) ([\d.]+)\s*$", expression.strip())[-1]
    shown = ("==", 0.0) if condition.compared == "<" else (condition.compared, condition.limit)
    assert (compared, float(limit)) == shown, "a gauge of 0 or 1 is below 1 where it equals 0"


# -- hostile answers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ready", "metrics", "read"),
    [
        pytest.param("<html>", WELL, [READYZ], id="a page of another server"),
        pytest.param("", "", [READYZ, METRICS], id="nothing"),
        pytest.param(READY, "\x00\ud800 {", [METRICS], id="no metrics"),
        pytest.param(READY, "kubestow_leading 1.0\n", [METRICS], id="metrics of another program"),
        pytest.param("[]ping", BUILD, [READYZ], id="no check"),
    ],
)
def test_garbage_is_no_proof_of_health(ready: str, metrics: str, read: list[str]) -> None:
    found = of(ready, metrics)

    assert (found.healthy, found.exit_code, len(found.unavailable)) == (False, 4, len(read))
    for path, why in zip(read, found.unavailable):
        assert f"the answer to GET {path} " in why
    as_json(found)
    status_text(found, WALL_S)


def test_numbers_that_are_none() -> None:
    lines = [
        f'kubestow_watch_down_seconds{{kind="K{value}"}} {value}' for value in ("NaN", "+Inf", "-Inf", "1e999", "x")
    ]
    lines.append('scheduler_pending_pods{queue="active"} NaN')

    found = of(metrics=WELL + "\n".join(lines) + "\n")

    assert (found.troubles, found.queue) == ((), {})


def test_a_flood_of_labels_is_cut() -> None:
    names = (
        ("scheduler_pending_pods", "queue"),
        ("scheduler_unschedulable_pods", "plugin"),
        ("kubestow_watch_objects", "kind"),
    )
    flood = "".join(f'{name}{{{label}="{at}"}} 1.0\n' for name, label in names for at in range(20_000))
    checks = "".join(f"[-]c{at} failed: {'x' * 5000}\n" for at in range(5000))
    found = of(checks, WELL + flood)

    assert len(as_json(found)) < 200_000
    assert (len(found.queue or ()), len(found.causes or ()), len(found.troubles)) == (20, 10, 200)


def test_control_characters_do_not_reach_the_terminal() -> None:
    found = of("[-]a failed: \x1b[2J\u202e\nreadyz check failed\n", WELL)

    assert "\\x1b[2J\\u202e" in status_text(found, WALL_S)


def test_a_page_that_cannot_be_read() -> None:
    found = of(metrics="no permission: get", readyz="no answer")

    assert (found.exit_code, found.version) == (4, None)
    assert status_text(found, WALL_S).splitlines()[-2:] == [
        "not read: no answer",
        "not read: the answer to GET /metrics has no kubestow_build_info; is this the scheduler's port?",
    ]


def test_a_trouble_counts_more_than_a_page_that_is_missing() -> None:
    assert of("[-]a failed: b\n", metrics="no permission").exit_code == 1


def test_labels_with_quotes() -> None:
    samples = Samples('m{a="x\\"}",b="2"} 3\n# HELP m\nm 4 5\n', {"m"})

    assert [(each.labels, each.value) for each in samples.of("m")] == [({"a": 'x\\"}', "b": "2"}, 3.0)]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"),
        (0.4, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3661, "1h1m"),
        (90_000, "1d1h"),
        (86_405, "1d"),
        (1e30, "115740d17h"),
    ],
)
def test_an_age(seconds: float, text: str) -> None:
    assert age_text(seconds) == text
