"""Run the compilers that kube-scheduler v1.36.3 and v1.37.2 use, and write their answers. Needs Go.

python -m tests.unit.cel.goldens.regenerate

`answers.jsonl` has those of v1.36.3, `answers-1.37.jsonl` those of v1.37.2 that differ, by their line.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.cel.goldens import questions

HERE = Path(__file__).parent
_WITH_LISTS = ("full", "small", "wrong-types", "lists", "one-list", "long-list", "bad-version-in-list")
_BROKEN = ("bad-version", "leading-zero-version", "no-value", "one-list")
_TIMES = 20
_FEW = ("full", "small", "bare")
_PLAIN = ("SELECTIONS", "LOGIC", "NUMBERS", "STRINGS", "LISTS", "OPTIONALS", "KUBERNETES")


def main() -> None:
    devices = [each["name"] for each in json.loads((HERE / "devices.json").read_text())]
    plain = [each for each in devices if each not in {*_WITH_LISTS[3:], *_BROKEN}]
    asked = [
        *_questions("plain", plain),
        *({**each, "lists": True} for each in _questions("list attributes", _WITH_LISTS)),
        *({**each, "lists": True} for each in _questions("results", _FEW[:1])),
        *_questions("broken", _BROKEN),
        *_questions("few", _FEW),
        {"expression": "device.allowMultipleAllocations", "consumable": False, "devices": _FEW},
    ]
    of_1_36 = _lines(asked, "go.mod")
    of_1_37 = _lines(asked, "go-1.37.mod")
    changed = [
        json.dumps({"line": number} | json.loads(newer), ensure_ascii=False, sort_keys=True)
        for number, (line, newer) in enumerate(zip(of_1_36, of_1_37, strict=True))
        if newer != line
    ]
    (HERE / "answers.jsonl").write_text("\n".join(of_1_36) + "\n")
    (HERE / "answers-1.37.jsonl").write_text("\n".join(changed) + "\n")


def _lines(asked: list[dict[str, Any]], module: str) -> list[str]:
    answers = [_answers(asked, module) for _ in range(_TIMES)]
    return [json.dumps(_agreed(each), ensure_ascii=False, sort_keys=True) for each in zip(*answers)]


def _answers(asked: list[dict[str, Any]], module: str) -> list[dict[str, Any]]:
    told = subprocess.run(
        ["go", "run", f"-modfile={module}", ".", "../devices.json"],
        cwd=HERE / "oracle",
        input="\n".join(map(json.dumps, asked)),
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    return list(map(json.loads, told.splitlines()))


def _agreed(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The answer, without costs, which depend on the order of Go's maps."""
    for answer in answers:
        for outcome in answer.get("outcomes", ()):
            outcome.pop("cost", None)
    assert all(each == answers[0] for each in answers), "an answer that depends on the order of maps"
    return answers[0]


def _questions(theme: str, devices: tuple[str, ...] | list[str]) -> list[dict[str, Any]]:
    expressions = {
        "plain": [each for group in _PLAIN for each in questions.BY_THEME[group]],
        "few": [*questions.BY_THEME["REFUSED"], *questions.BY_THEME["COSTS"], *questions.LONG],
        "list attributes": questions.BY_THEME["LIST_ATTRIBUTES"],
        "results": questions.BY_THEME["RESULTS"],
        "broken": questions.BROKEN,
    }
    return [
        {"expression": expression, "consumable": True, "lists": False, "devices": devices}
        for expression in expressions[theme]
    ]


if __name__ == "__main__":
    main()
