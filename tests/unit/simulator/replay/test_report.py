"""The table and the page of a replay. `tests/page/test_replay_page.py` shows the page in a browser."""

from __future__ import annotations

import html.parser
import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

import kubestow
from scheduler.cli import main as cli
from simulator.replay.answer import ReplayAnswer, as_json
from simulator.replay.report import as_html, as_table, duration
from simulator.replay.timeline import distribution, percentile
from simulator.replay.utilization import Steps
from tests.support import jsonschema
from tests.unit.simulator.replay.histories import SYNCED, a_node, a_pod, history, obj, replay

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
SCHEMA = Path(__file__).parents[4] / "docs" / "replay.schema.json"


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> ReplayAnswer:
    path = tmp_path_factory.mktemp("history") / "a.gz"
    big = a_pod("big", "9")
    events = [
        (0, "ADDED", a_node("n")),
        SYNCED,
        (10, "ADDED", a_pod("p")),
        (20, "ADDED", big),
        (500, "ADDED", obj("Namespace", "end")),
    ]
    return replay(history(path, events))


def test_the_answer_matches_its_schema(answer: ReplayAnswer) -> None:
    assert list(jsonschema.mistakes(json.loads(as_json(answer)), json.loads(SCHEMA.read_text()))) == []


def test_the_schema_is_that_of_the_types() -> None:
    """Write it with: python -m tools.answer_schemas"""
    from tools.answer_schemas import page

    assert SCHEMA.read_text() == page("replay.schema.json")


def test_the_table(answer: ReplayAnswer) -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(as_table(answer))

    rows = {line[:24].strip(): line[24:].split() for line in out.getvalue().splitlines()}
    assert rows["pods that arrived"] == ["2", "2"]
    assert rows["bound"] == ["0", "1"]
    assert rows["waiting at the end"] == ["2", "1"]
    assert rows["cpu, mean (peak)"][-2:] == ["24.5%", "(25.0%)"]


def test_names_and_paths_are_no_markup(answer: ReplayAnswer) -> None:
    run = answer.runs[-1]
    use = [msgspec.structs.replace(each, name="[/x]:on:", pool="[red]p") for each in run.use]
    runs = [msgspec.structs.replace(run, config="/tmp/a[/b]:on:.yaml", use=use)]
    hostile = msgspec.structs.replace(answer, scheduler_names=["[/x]"], runs=runs)
    out = io.StringIO()
    Console(file=out, width=200).print(as_table(hostile))

    for text in ("pods of [/x]", "/tmp/a[/b]:on:.yaml", "[/x]:on: in [red]p, mean (peak)"):
        assert text in out.getvalue()


class Links(html.parser.HTMLParser):
    """Collect what a page would load, and the texts of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.loaded += [value or "" for name, value in attrs if name in {"src", "href"} and value != "data:,"]


def test_the_page_loads_nothing(answer: ReplayAnswer) -> None:
    page = as_html(answer).decode()
    found = Links()
    found.feed(page)

    assert (found.loaded, found.scripts) == ([], 4)
    assert "The MIT License (MIT)" in page
    assert "Copyright (c) 2022 Leon Sorokin" in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src-elem 'sha256-")
    assert "script-src 'sha256-" in policy[1]
    assert "'unsafe-eval'" not in policy[1]


def test_hostile_names_stay_texts(answer: ReplayAnswer) -> None:
    run = answer.runs[-1]
    pods = [msgspec.structs.replace(each, pod=HOSTILE, message=HOSTILE) for each in run.pods]
    odd = msgspec.structs.replace(
        answer, runs=[*answer.runs[:-1], msgspec.structs.replace(run, pods=pods, config=HOSTILE)]
    )

    found = Links()
    found.feed(as_html(odd).decode())
    assert (found.loaded, found.scripts) == ([], 4)


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0ms"), (0.0151, "15ms"), (1, "1.0s"), (59.94, "59.9s"), (60, "1m00s"), (3723, "1h02m"), (90_000, "1d01h"),
])  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("changes", "means"), [
    pytest.param([], [0, 0, 0, 0], id="nothing"),
    pytest.param([(0, 4)], [4, 4, 4, 4], id="from the start"),
    pytest.param([(5, 4)], [2, 4, 4, 4], id="within an interval"),
    pytest.param([(5, 4), (25, -4)], [2, 4, 2, 0], id="over several intervals"),
    pytest.param([(10, 4), (20, -4)], [0, 4, 0, 0], id="at the ends of an interval"),
    pytest.param([(39, 8), (55, 8)], [0, 0, 0, 0.8], id="after the end"),
])  # fmt: skip
def test_means_of_steps(changes: list[tuple[float, float]], means: list[float]) -> None:
    steps = Steps(10.0, [0.0] * 4)
    for at_s, change in changes:
        steps.add(at_s, change)
    steps.advance(40)

    assert steps.means() == pytest.approx(means)


def test_percentiles_and_distribution() -> None:
    ordered = [1.0, 2.0, 3.0, 4.0]

    assert [percentile(ordered, share) for share in (0.5, 0.75, 0.99, 1.0)] == [2, 3, 4, 4]
    assert percentile([], 0.5) == 0
    assert list(distribution(ordered, (0.5, 2.0, 10.0))) == [(0.5, 0), (2.0, 2), (10.0, 4)]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["replay", *argv])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = (
        history(tmp_path / "a.gz", [(0, "ADDED", a_node("n")), SYNCED, (5, "ADDED", a_pod("p"))]),
        tmp_path / "a.html",
    )
    code, out, err = run(
        capsys, str(file), "--emulated-version=1.37", "--emulated-version=1.36", f"--html={page}", "-o", "json"
    )

    found = json.loads(out)
    assert (code, err) == (0, "")
    assert [(each["name"], each["version"], each["bound"]) for each in found["runs"]] == [
        ("recorded", "", 0),
        ("A", "1.37", 1),
        ("B", "1.36", 1),
    ]
    assert page.read_bytes().startswith(b"<!doctype html>")


@pytest.mark.parametrize(("argv", "code", "expected"), [
    pytest.param(["{file}", "--config=a", "--config=b", "--config=c"], 2, "give each of them at most twice", id="three configurations"),
    pytest.param(["{file}", "--config={file}"], 1, "", id="a wrong configuration"),
    pytest.param(["/nowhere"], 2, "kubestow replay: /nowhere: No such file", id="no file"),
    pytest.param(["{file}", "--html=/nowhere/a.html"], 2, "kubestow replay: --html: /nowhere/a.html: the folder /nowhere does not exist", id="no folder for the page"),
    pytest.param(["/nowhere", "--html=/"], 2, "kubestow replay: --html: /: is a folder; name a file", id="the page is checked before the replay"),
    pytest.param(["{file}", "--scheduler-name=x"], 2, "no pod of x arrives in the recording", id="no such scheduler"),
])  # fmt: skip
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, expected: str
) -> None:
    file = history(tmp_path / "a.gz", [(0, "ADDED", a_node("n")), SYNCED, (5, "ADDED", a_pod("p"))])
    found = run(capsys, *(each.replace("{file}", str(file)) for each in argv))

    assert found[0] == code
    assert expected in found[2]
    assert "Traceback" not in found[2]


@pytest.mark.parametrize("argv", [
    ["record", "f", "--max-size=0"], ["record", "f", "--max-size=x"], ["record"], ["record", ""], ["replay"],
    ["replay", "f", "--speed=0"], ["replay", "f", "--speed=fast"], ["replay", "f", "--seed=-1"],
])  # fmt: skip
def test_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2


def test_a_cut_recording_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = history(tmp_path / "a.gz", [(0, "ADDED", a_node("n")), SYNCED, (5, "ADDED", a_pod("p"))])
    file.write_bytes(file.read_bytes()[:-9])
    code, out, err = run(capsys, str(file))

    assert code == 0
    assert "bound" in out
    assert "warning: the recording ends abruptly" in err


def test_the_library_returns_the_same_answer(tmp_path: Path) -> None:
    file = history(tmp_path / "a.gz", [(0, "ADDED", a_node("n")), SYNCED, (5, "ADDED", a_pod("p"))])
    found = kubestow.replay(file, version="1.37")

    assert as_json(found) == as_json(replay(file))
    with pytest.raises(ValueError, match="at most 2 are compared"):
        kubestow.replay(file, None, None, None)
    with pytest.raises(ValueError, match="version: 'x' is unknown"):
        kubestow.replay(file, version="x")
