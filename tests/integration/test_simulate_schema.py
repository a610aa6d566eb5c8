"""`simulate -o json` prints what its schema says, for each example and for inputs of real projects."""

import json
from pathlib import Path

import msgspec
import pytest

from scheduler.cli import main as cli
from simulator.simulate.answer import Answer
from tests.support.jsonschema import mistakes

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "simulate.schema.json").read_text())
EXAMPLES = [ROOT / "examples" / f"{name}.yaml" for name in ("demo", "devices", "preemption", "volumes")]
INPUTS = [ROOT / "tests" / "e2e" / "inputs" / f"{name}.yaml" for name in ("kueue", "rollout", "strimzi")]

pytestmark = pytest.mark.usefixtures("guest")


@pytest.mark.parametrize("path", [*EXAMPLES, *INPUTS], ids=lambda path: path.stem)
def test_the_output_is_as_the_schema_says(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["simulate", "-o", "json", str(path)])
    printed = capsys.readouterr().out
    assert list(mistakes(json.loads(printed), SCHEMA)) == []
    assert msgspec.json.decode(printed, type=Answer).pods


def test_every_example_is_simulated() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.yaml")} == {path.stem for path in EXAMPLES} | {"kind"}
