"""Pages: links lead somewhere, each alert is explained where it says, and docs/configuration.md has whatever is read."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from scheduler.cli.flags import REFUSED, WITHOUT_EFFECT, parser
from scheduler.config.args import SPELLED, UPSTREAM, KubestowArgs, default_args
from scheduler.config.dump import changes
from scheduler.config.errors import ConfigErrors
from scheduler.config.fields import Fields
from scheduler.config.load import default, parse
from scheduler.config.read_profiles import read_changes
from scheduler.config.types import GATES_ON, Configuration
from scheduler.core.feature_gates import GATES as STAGES, VERSIONS
from scheduler.profiles.build import build_profiles
from tests.unit.cli.test_upstream_flags import FLAGS, name_of
from tools.configuration_page import reference
from tools.configuration_tables import ARGUMENTS, FIELDS, GATES, ignored

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"])
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
        "parity",
        "victims",
        *SPELLED.values(),
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


PAGE = ROOT / "docs/configuration.md"
CURVE = [{"utilization": 0, "score": 10}]
AMOUNTS = [{"name": "cpu", "weight": 1}]
EVERYTHING: dict[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "p",
            "plugins": {"filter": {"enabled": [{"name": "a"}], "disabled": [{"name": "b"}]}},
            "pluginConfig": [
                {"name": name, "args": args}
                for name, args in {
                    **{name: {} for name in default_args()},
                    "NodeAffinity": {"addedAffinity": {}},
                    "NodeResourcesFit": {
                        "scoringStrategy": {
                            "type": "RequestedToCapacityRatio",
                            "resources": AMOUNTS,
                            "requestedToCapacityRatio": {"shape": CURVE},
                        }
                    },
                    "NodeResourcesBalancedAllocation": {"resources": AMOUNTS},
                    "PodTopologySpread": {
                        "defaultingType": "List",
                        "defaultConstraints": [{"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor"}],
                    },
                    "VolumeBinding": {"shape": CURVE},
                }.items()
            ],
        }
    ],
}
"""Each list has an element, so that the reader reads the fields of elements."""
IN_A_PROFILE = "profiles[].pluginConfig[].args"


@pytest.fixture
def paths_read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the paths that the reader reads, without list indexes, except those of plugins."""
    found: set[str] = set()
    raw = Fields.raw

    def heard(self: Fields, name: str) -> Any:
        found.add(self.at(name))
        return raw(self, name)

    monkeypatch.setattr(Fields, "raw", heard)
    with pytest.raises(ConfigErrors):  # not all of it is right, which stops no reader
        parse(json.dumps(EVERYTHING), source="all", feature_gates=GATES_ON | {"StorageCapacityScoring"})
    return found


def general(path: str) -> str:
    """The path as the page writes it."""
    path = re.sub(r"\[\d+\]", "[]", path)
    return re.sub(r"plugins\.\w+\.(enabled|disabled)\[\]\.", r"plugins.<point>.\1[].", path)


def leaves(paths: set[str]) -> set[str]:
    """Without the mappings and lists that have something below them."""
    return {path for path in paths if not any(other.startswith((f"{path}.", f"{path}[].")) for other in paths)}


def test_the_page_is_what_the_code_says() -> None:
    """Else: python -m tools.configuration_page > docs/configuration.md"""
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_every_field_that_is_read_is_documented(paths_read: set[str]) -> None:
    here = {general(path) for path in paths_read}
    read = leaves({path for path in here if not path.startswith(f"{IN_A_PROFILE}.")})
    empty = {path for path in read if re.fullmatch(r"profiles\[\]\.plugins\.\w+(\.(enabled|disabled))?", path)}

    assert set(FIELDS) - {"profiles"} == read - empty
    assert "extenders" in read


@pytest.mark.parametrize("at", range(len(default_args())), ids=list(default_args()))
def test_every_argument_that_is_read_is_documented(at: int, paths_read: set[str]) -> None:
    """And no other, but for the type of the arguments."""
    root = f"profiles[0].pluginConfig[{at}].args."
    name = EVERYTHING["profiles"][0]["pluginConfig"][at]["name"]
    read = {general(path.removeprefix(root)) for path in paths_read if path.startswith(root)} - {"apiVersion", "kind"}
    section = PAGE.read_text(encoding="utf-8").partition(f"\n### {name}\n")[2].partition("\n#")[0]
    told = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))

    if name == "NodeAffinity":  # what a NodeAffinity is Kubernetes says
        read = {path for path in read if "." not in path}
    assert leaves(told) == leaves(read)
    assert set(ARGUMENTS[name]) <= told


def test_what_has_no_effect_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the reader may say it of, and nothing else."""
    said: set[str] = set()
    monkeypatch.setattr(Fields, "no_effect", lambda fields, name: said.add(general(fields.at(name))))
    head = {name: EVERYTHING[name] for name in ("apiVersion", "kind")}
    parse(json.dumps({**head, "profiles": [{"schedulerName": "p"}]}), source="head")
    monkeypatch.undo()

    assert {path for path in FIELDS if "*No effect.*" in _row(path)} == ignored() == said
    assert "parallelism" in said


def test_every_switch_has_upstreams_value() -> None:
    section = _text().partition("\n### Kubestow\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| `?(.*?)`? \| `?(.*?)`? \| .", section, re.MULTILINE)
    args = KubestowArgs()

    assert len(rows) == len(SPELLED) + 2
    assert len({field for field, _, _ in rows}) == len(rows)
    assert sum(usual != upstream for _, usual, upstream in rows) == 1 + sum(
        getattr(args, name) != UPSTREAM[name] for name in SPELLED
    )


def test_every_gate_is_documented() -> None:
    assert set(GATES) == set(STAGES)
    for name, stages in STAGES.items():
        told = " | ".join(
            f"{'on' if stages[version].is_on else 'off'}{', locked' if stages[version].is_locked else ''}"
            for version in VERSIONS
        )
        assert f"| `{name}` | {told} | " in _text()
    assert _row("DRADeviceTaintRules").endswith(" Needs `DRADeviceTaints`. |")


def test_every_flag_of_kube_scheduler_is_in_the_table() -> None:
    section = _text().partition("\n### kube-scheduler's flags\n")[2].partition("\n### ")[0]

    assert sorted(re.findall(r"`(--[^`]+)`", section.partition("| --- |")[2])) == sorted(map(name_of, FLAGS))


def test_every_flag_says_what_it_is() -> None:
    run = _text().partition("\n### kubestow run\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (`-.+?) \| (.*?) \| (.*) \|$", run, re.MULTILINE)
    flags = [flag for names, _, _ in rows for flag in re.findall(r"`([^`]+)`", names)]
    flags += [f"--{flag.name}" for flag in (*WITHOUT_EFFECT, *REFUSED)]  # in a separate table
    command = next(action for action in parser()._actions if action.choices).choices["run"]  # type: ignore[index]

    assert sorted(flags) == sorted(
        option for action in command._actions if action.dest != "help" for option in action.option_strings
    )
    assert [names for names, _, text in rows if not text] == []


def _text() -> str:
    return PAGE.read_text(encoding="utf-8")


def _row(field: str) -> str:
    (row,) = (line for line in _text().splitlines() if line.startswith(f"| `{field}` | "))
    return row


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = set(re.findall(r"[\w./-]+\.md", text))

    assert {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} | {"index.md"} == named
