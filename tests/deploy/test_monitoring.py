"""Rules and dashboard as files: promtool accepts them, and their metrics exist."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.metrics.metrics import Metrics
from tests.unit.metrics.test_metrics import used

REPOSITORY = Path(__file__).parents[2]
FILES = REPOSITORY / "deploy" / "helm" / "files"
RULES = FILES / "rules.yaml"
DASHBOARD = FILES / "dashboard.json"
TESTS = sorted((Path(__file__).parent / "rules").glob("*.yaml"))
GROUPS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
RECORDED = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
BOARD: dict[str, Any] = json.loads(DASHBOARD.read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
THEIRS = {"ALERTS", "scrape_samples_scraped", "up"}
"""Prometheus makes them itself."""
MADE = {each.name: each.kind for each in Metrics(process=False).described()}
METRIC = re.compile(r"\b(?:scheduler|kubestow|rest_client|leader_election|process|python|scrape)_\w+|kubestow:\w+:\w+")


def run(tool: Path, *arguments: str, given: bytes = b"", directory: Path = REPOSITORY) -> tuple[int, str]:
    done = subprocess.run([tool, *arguments], input=given, capture_output=True, cwd=directory, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard, with its panel."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_prometheus_takes_the_rules(promtool: Path) -> None:
    code, said = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert code == 0, said


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_rules(promtool: Path, file: Path) -> None:
    code, said = run(promtool, "test", "rules", file.name, directory=file.parent)
    assert code == 0, said


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_has_a_table(rule: dict[str, Any]) -> None:
    name = f'alertname="{rule["alert"]}"'
    tests = [test for file in TESTS for test in yaml.safe_load(file.read_text())["tests"]]
    asked = [query for test in tests for query in test["promql_expr_test"] if name in query["expr"]]
    assert {bool(query.get("exp_samples")) for query in asked} == {True, False}
    told = [sample["labels"] for query in asked for sample in query.get("exp_samples", ())]
    assert any(f'severity="{rule["labels"]["severity"]}"' in labels for labels in told)


def test_a_wrong_alert_is_noticed(promtool: Path, tmp_path: Path) -> None:
    expected = {"running": "vector(0) > 1", "healthy": "vector(1)"}
    for file, expr in expected.items():
        rules = [rule | ({"expr": expr} if rule.get("alert") == "KubestowNoLeader" else {}) for rule in ALERTS]
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "changed", "rules": rules}]}))
        tests = yaml.safe_load((TESTS[0].parent / f"{file}.yaml").read_text()) | {"rule_files": ["rules.yaml"]}
        (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
        code, said = run(promtool, "test", "rules", str(tmp_path / "tests.yaml"))
        assert (code, "KubestowNoLeader" in said) == (1, True)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("Kubestow")
    assert [each["alert"] for each in ALERTS].count(rule["alert"]) == 1
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    told = rule["annotations"]
    assert sorted(told) == ["description", "runbook_url", "summary"]
    assert told["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"
    assert len(told["summary"]) < 100
    assert 100 < len(told["description"]) < 600


def test_rules_and_dashboard_speak_of_metrics_that_there_are() -> None:
    rules = [rule["expr"] for group in GROUPS for rule in group["rules"]]
    known = set(THEIRS) | RECORDED | set(MADE)
    known |= {
        f"{name}{end}" for name, kind in MADE.items() if kind == "histogram" for end in ("_bucket", "_sum", "_count")
    }
    asked = {name for expr in (*rules, *(expr for _, expr in queries())) for name in METRIC.findall(expr)}
    assert {name for name in asked - known if not name.startswith(("process_", "python_"))} == set()
    assert len(asked) > 50


def test_a_scrape_is_what_promtool_would_have_it(promtool: Path) -> None:
    metrics = used()
    code, said = run(promtool, "check", "metrics", given=metrics.render())
    assert (code, said) == (0, "")


# -- the dashboard -----------------------------------------------------------------------------------------------------


def test_the_file_is_in_a_stable_order() -> None:
    assert json.dumps(BOARD, indent=2, sort_keys=True, ensure_ascii=False) + "\n" == DASHBOARD.read_text()


def test_panels_have_unique_ids_and_places() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: f"{panel['id']} {panel['title']}")
def test_a_panel_can_be_read(panel: dict[str, Any]) -> None:
    assert 2 < len(panel["title"]) <= 30
    assert panel["fieldConfig"]["defaults"]["unit"] in {"none", "s", "bytes", "reqps", "percentunit"}
    letters = [target["refId"] for target in panel["targets"]]
    assert len(set(letters)) == len(letters) > 0
    for target in (panel, *panel["targets"]):
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_titles_are_unique_within_a_row() -> None:
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        *("Overview", "Queue", "Attempts and latency", "Plugins", "Volumes", "Devices"),
        *("API traffic and watches", "Process"),
    ]


def test_queries_use_the_variables() -> None:
    names = [variable["name"] for variable in BOARD["templating"]["list"]]
    assert names == ["datasource", "job", "instance", "profile"]
    for title, expr in queries():
        if "ALERTS" not in expr:
            assert 'job=~"$job", instance=~"$instance"' in expr, title
    used_variables = {name for _, expr in queries() for name in re.findall(r"\$(\w+)", expr)}
    assert used_variables == {"job", "instance", "profile", "__rate_interval"}
