"""What the pages say of each other and of the chart: links lead somewhere, and each alert is explained where it says."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from scheduler.config.args import SPELLED, KubestowArgs
from scheduler.config.dump import changes
from scheduler.config.errors import ConfigErrors
from scheduler.config.load import default, parse
from scheduler.config.read_profiles import read_changes
from scheduler.config.types import Configuration
from scheduler.profiles.build import build_profiles

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OPERATIONS = ROOT / "docs/operations.md"
RULES = yaml.safe_load((ROOT / "deploy/helm/files/rules.yaml").read_text())
ALERTS = {
    rule["alert"]: rule["annotations"]["runbook_url"]
    for group in RULES["groups"]
    for rule in group["rules"]
    if "alert" in rule
}
FENCE = re.compile(r"^ *(```+)[^\n]*\n.*?^ *\1 *$\n?", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
LINK = re.compile(r"\[[^\[\]]*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def links(text: str) -> list[str]:
    """Where a page leads; code leads nowhere."""
    return LINK.findall(CODE.sub("x", FENCE.sub("", text)))


@cache
def anchors(page: Path) -> frozenset[str]:
    """As a forge makes them of headings: the second of one name gets a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        plain = re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return frozenset(found)


def problem(page: Path, link: str) -> str:
    """ "" for a link that leads somewhere."""
    if re.match(r"[a-z]+:", link):
        return ""
    path, _, anchor = link.partition("#")
    target = (page.parent / unquote(path)).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return f"{link}: there is no such file"
    return f"{link}: there is no such heading" if anchor and anchor not in anchors(target) else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = [told for link in links(page.read_text(encoding="utf-8")) if (told := problem(page, link))]
    assert wrong == []


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        pytest.param("operations.md#alerts", "", id="a heading of another page"),
        pytest.param("#install", "", id="a heading of the page"),
        pytest.param("https://example.com/nowhere", "", id="no request is sent"),
        pytest.param("nowhere.md", "nowhere.md: there is no such file", id="no file"),
        pytest.param("#nowhere", "#nowhere: there is no such heading", id="no heading"),
        pytest.param("../../x.md", "../../x.md: there is no such file", id="outside of the repository"),
    ],
)
def test_what_is_a_broken_link(link: str, expected: str) -> None:
    assert problem(OPERATIONS, link) == expected


def test_only_what_is_shown_as_a_link_is_one() -> None:
    text = "[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n1. x\n\n   ```\n   [g](h.md)\n   ```\n[i](j.md#k)\n"
    assert links(text) == ["b.md", "j.md#k"]


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    text = OPERATIONS.read_text(encoding="utf-8").partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.+)$", text, re.MULTILINE) == list(ALERTS)
    assert {alert: f"docs/operations.md#{alert.lower()}" for alert in ALERTS} == ALERTS
    assert {url.partition("#")[2] for url in ALERTS.values()} <= anchors(OPERATIONS)


@pytest.mark.parametrize("alert", ALERTS)
def test_a_section_says_how_to_look_and_what_to_do(alert: str) -> None:
    section = OPERATIONS.read_text(encoding="utf-8").partition(f"\n### {alert}\n\n")[2].partition("\n#")[0]
    meaning, _, rest = section.partition("\n\n* *Look*: ")
    assert meaning.strip()
    assert not meaning.startswith("*")
    looking, _, doing = rest.partition("\n* *Do*: ")
    assert looking.strip()
    assert doing.strip()


def test_the_rows_of_the_dashboard() -> None:
    board = json.loads((ROOT / "deploy/helm/files/dashboard.json").read_text(encoding="utf-8"))
    section = OPERATIONS.read_text(encoding="utf-8").partition("\n## The dashboard\n")[2]
    told = re.findall(r"^\| (.+?) \| ", section, re.MULTILINE)
    assert told[2:] == [panel["title"] for panel in board["panels"] if panel["type"] == "row"]


def shown_profile() -> tuple[dict[str, Any], dict[str, Any], str]:
    """The object that the page shows, its status, and what is said of a mistake in it."""
    text = OPERATIONS.read_text(encoding="utf-8").partition("\n## Configuration as an API object\n")[2]
    obj, status = (
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[:2]
    )
    (quoted,) = re.findall(r"^> (.+)$", text.partition("\n## ")[0], re.MULTILINE)
    return obj, status["status"], quoted


def test_the_profile_that_is_shown_does_what_its_status_says() -> None:
    obj, status, _ = shown_profile()
    (base,) = default().profiles
    changed = read_changes(obj["spec"], base, path="spec")
    before, after = (
        (profile, build_profiles(Configuration(profiles=(profile,)))[profile.scheduler_name].resolved)
        for profile in (base, changed)
    )
    assert obj["metadata"]["name"] == base.scheduler_name
    assert status["changes"] == status["conditions"][0]["message"] == changes(before, after)


def test_the_quoted_mistake_is_reported_in_these_words() -> None:
    obj, status, quoted = shown_profile()
    spec = copy.deepcopy(obj["spec"])
    spec["pluginConfig"][0]["args"]["scoringStrategy"]["type"] = "Most"
    with pytest.raises(ConfigErrors) as told:
        read_changes(spec, default().profiles[0], path="spec")
    assert quoted == f"{told.value} (generation {status['inForceGeneration']} stays in force)"


def test_the_example_configuration_has_every_switch() -> None:
    """Each switch has its default, so that a copy changes nothing."""
    text = (ROOT / "examples/config/kubestow.yaml").read_text(encoding="utf-8")
    packed = parse(text, source="example").profiles[1]
    (given,) = (
        entry["args"]
        for entry in yaml.safe_load(text)["profiles"][1]["pluginConfig"]
        if entry["name"] == KubestowArgs.plugin
    )
    assert packed.args_for(KubestowArgs) == KubestowArgs()
    assert set(given) - {"apiVersion", "kind"} == {
        SPELLED.get(field.name, field.name) for field in fields(KubestowArgs)
    }


@pytest.mark.parametrize("page", ["operations.md", "volumes.md", "devices.md"])
def test_metrics_that_are_named_are_there(page: str) -> None:
    """In docs/metrics.md, or recorded by a rule."""
    there = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/metrics.md").read_text(encoding="utf-8"), re.MULTILINE))
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:rate\(|increase\()?((?:kubestow|scheduler|rest_client)_\w+)", text))
    assert named
    assert named - there == set()


def test_the_readme_is_one_page() -> None:
    """At most 120 lines of at most 110 characters."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()

    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 110] == []
