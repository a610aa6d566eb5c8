"""Record the costs that kube-apiserver v1.36.3 and v1.37.2 estimate for selectors. Needs Go.

python -m tests.unit.cel.goldens.estimates

A line of `estimates.jsonl` is an expression, whether attributes may be lists, the cost of v1.37.2, and that of v1.36.3
if it differs.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Final

from tests.unit.cel.goldens.random_selectors import RandomSelectors
from tests.unit.cel.goldens.regenerate import HERE, answers

_DRAWN: Final = 400
_LONGEST: Final = 300
USED: Final = (
    "device.driver == 'gpu.nvidia.com'",
    "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
    "device.attributes['gpu.nvidia.com'].type == 'mig' && device.attributes['gpu.nvidia.com'].profile == '1g.5gb'",
    "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')",
    "device.attributes['gpu.nvidia.com'].index < 2 || device.attributes['gpu.nvidia.com'].minor == 7",
    "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0",
    "device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('550.0.0'))",
    "device.attributes['gpu.nvidia.com'].cudaComputeCapability.compareTo(semver('9.0.0')) >= 0",
    "cel.bind(dra, device.attributes['gpu.intel.com'], dra.family == 'Max' && dra.model == '0x0bda')",
    "device.driver == 'dra.net' && device.attributes['dra.net'].ifName == 'eth1'",
    "'dra.net' in device.attributes && 'rdma' in device.attributes['dra.net'] && device.attributes['dra.net'].rdma",
    "device.attributes['dra.cpu'].numaNode == 0 && !device.attributes['dra.cpu'].smtEnabled",
    "has(device.attributes['gpu.amd.com'].partitionProfile) && device.attributes['gpu.amd.com'].partitionProfile == 'spx_nps1'",
    "device.attributes['gpu.example.com'].?color.orValue('red') in ['red', 'green', 'blue']",
    "device.attributes.exists(d, d.endsWith('.example.com'))",
    "device.attributes.all(d, device.attributes[d].all(a, a != 'broken'))",
    "type(device.attributes['gpu.example.com'].index) == int",
    "string(device.attributes['gpu.example.com'].uuid).startsWith('GPU-')",
    "device.attributes['gpu.example.com'].map(k, device.attributes['gpu.example.com'][k]).exists(v, v == 1)",
    "cel.bind(a, device.attributes['gpu.example.com'], a.all(k, a[k] != 'x' && k.size() < 40))",
    "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))",
    "lists.range(1000).all(x, lists.range(100).all(y, x + y >= 0))",
)
"""Selectors of drivers' documentation, and loops on both sides of the limit."""


def main() -> None:
    asked = {(expression, False) for expression in USED}
    for answer in map(json.loads, (HERE / "answers.jsonl").read_text().splitlines()):
        asked.add((answer["expression"], answer["lists"]))
    for group in json.loads((HERE / "libraries.json").read_text()).values():
        for expressions in group.values():
            asked |= {(f"dyn({each}) == dyn({each})", False) for each in expressions}
    drawn = RandomSelectors(1)
    selectors = [each for each in (drawn.selector() for _ in range(_DRAWN)) if len(each) <= _LONGEST]
    asked |= set(product(selectors, (False, True)))
    questions = [
        {"expression": expression, "consumable": True, "lists": lists, "estimate": True}
        for expression, lists in sorted(asked)
    ]
    lines = []
    for older, newer in zip(answers(questions, "go.mod"), answers(questions, "go-1.37.mod"), strict=True):
        if "maxCost" in newer:
            costs = list(dict.fromkeys((newer["maxCost"], older.get("maxCost"))))
            lines.append(json.dumps([newer["expression"], newer["lists"], *costs], ensure_ascii=False))
    (HERE / "estimates.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
