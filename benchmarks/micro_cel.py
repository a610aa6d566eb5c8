"""What selectors cost: `python -m benchmarks.micro_cel`.

First table: microseconds of processor time per device for the thirteen expressions of docs/spec/cel.md, over 100 devices.
Second table: milliseconds of processor time of evaluations that go on until a limit ends them: upstream's cost, the deadline of
50 ms, or the size of what calls make. All figures are the best of three passes.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.in_process import PASSES
from scheduler.api import quantity
from scheduler.api.resource_v1 import Device
from scheduler.cache.devices.selectors import bindings_of, environment
from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.errors import CelError
from scheduler.cel.eval.program import compile_expression

_DEVICES = 100
_TURNS = 50
_DOMAIN = "gpu.example.com"
_A, _C = f'device.attributes["{_DOMAIN}"]', f'device.capacity["{_DOMAIN}"]'
_MODELS = ("A100", "H100", "L40S")

SELECTORS = {
    "driver": f'device.driver == "{_DOMAIN}"',
    "driver, model, memory": (
        f'device.driver == "{_DOMAIN}" && {_A}.model == "A100" && {_C}.memory.isGreaterThan(quantity("40Gi"))'
    ),
    "domain and bool": f'"{_DOMAIN}" in device.attributes && {_A}.healthy',
    "semver": f'{_A}.driverVersion.compareTo(semver("1.2.0")) >= 0',
    "cel.bind": f"cel.bind(a, {_A}, a.healthy && a.index < 1000)",
    "optional": f'{_A}.?foo.orValue("x") == "x"',
    "lowerAscii": f'{_A}.model.lowerAscii() == "a100"',
    "exists over attributes": f'{_A}.exists(k, k == "model")',
    "sets.contains": f'sets.contains(["A100", "H100"], [{_A}.model])',
    "in a list": f'{_A}.model in ["A100", "H100", "B200"]',
    "matches": f'{_A}.model.matches("^[AH]100$")',
    "find": f'{_A}.uuid.find("[0-9]+") != ""',
    "order": f"{_A}.index < 10 && {_A}.index > 2",
}
_TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
_ENDLESS = "lists.range(300000)"
_NUMBERS = "lists.range(9000).map(n, n)"
_DURATIONS = "lists.range(1000).map(n, timestamp(n) - timestamp(0))"
_LETTERS = 'lists.range(30000).map(n, "A").join()'
WORST = {
    "all in all": "lists.range(1000).all(a, lists.range(1000).all(b, true))",
    "literals in literals": "".join(f"{_TEN}.all({name}, " for name in "abcdef")
    + "a + b + c + d + e + f >= 0"
    + ")" * 6,
    "exists in exists": "lists.range(1000).exists(a, lists.range(1000).exists(b, a * b == -1))",
    "map in map": "lists.range(1000).map(a, lists.range(1000).map(b, a * b)).size() > 0",
    "filter in filter": "lists.range(1000).filter(a, lists.range(1000).filter(b, a < b).size() > 5000).size() > 0",
    "exists_one": f"{_ENDLESS}.exists_one(a, a == 299999)",
    "strings": f'{_ENDLESS}.all(a, string(a) + "x" + string(a) != "q")',
    "in a long list": f"cel.bind(l, lists.range(1000), {_ENDLESS}.all(a, !(-1 in l)))",
    "in a long literal": f"{_ENDLESS}.all(a, !(a in [{', '.join(map(str, range(-1500, -1)))}]))",
    "transformMap": f"{_ENDLESS}.transformMap(i, v, v * 2).size() > 0",
    "a choice": f"{_ENDLESS}.all(a, a % 2 == 0 ? a > -1 : a < 500000)",
    "optionals": f"{_ENDLESS}.all(a, [1, 2][?a].orValue(3) > 0)",
    "maps": f'{_ENDLESS}.all(a, {{"a": a}}.a == a)',
    "a long conjunction": f"{_ENDLESS}.all(a, {' && '.join(['a >= 0'] * 200)})",
    "format": f'{_ENDLESS}.all(a, "%d".format([a]) != "")',
    "quantities": f"{_ENDLESS}.all(a, isQuantity(string(a)))",
    "patterns": f'{_ENDLESS}.all(a, !string(a).matches("[a-z]+x"))',
    "groups of patterns": f'{_ENDLESS}.all(a, !string(a).matches("([a-z]|x)+"))',
    "a text as pattern each turn": f"{_ENDLESS}.all(a, !'x'.matches(string(a)))",
    "a pattern each turn": f"{_ENDLESS}.all(a, !'x'.matches('[a-z]+' + string(a)))",
    "patterns of long texts": f"cel.bind(t, {_LETTERS}, {_ENDLESS}.all(a, !t.matches('A*B')))",
    "find": f'{_ENDLESS}.all(a, string(a).find("[0-9]") != "")',
    "findAll": f'{_ENDLESS}.all(a, string(a).findAll("[0-9]").size() > 0)',
    "format of doubles": f'{_ENDLESS}.all(a, "%.2f".format([1.5]) != "")',
    "format of a double each turn": f'{_ENDLESS}.all(a, "%.2f".format([double(a)]) != "")',
    "format of large doubles": f'{_ENDLESS}.all(a, "%.2f".format([1e300 + double(a % 100) * 1e298]) != "")',
    "sums of quantities": f'cel.bind(q, quantity("1"), {_ENDLESS}.all(a, q.add(a).isInteger()))',
    "versions": f'{_ENDLESS}.all(a, isSemver("1.2." + string(a)))',
    "addresses": f'{_ENDLESS}.all(a, isIP("10.0.0." + string(a % 256)))',
    "URLs": f'{_ENDLESS}.all(a, url("/" + string(a)).getHost() == "")',
    "whole URLs": f'{_ENDLESS}.all(a, url("https://h" + string(a) + ".com/").getHost() != "")',
    "odd URLs": f'{_ENDLESS}.all(a, url("https://u%20@h" + string(a) + ".com/%20?a=%20").getHost() != "")',
    "escaped URLs": f"cel.bind(t, '/{'%20' * 1000}', {_ENDLESS}.all(a, isURL(t + string(a))))",
    "long addresses": f'{_ENDLESS}.all(a, ip("1:2:3:4:5:6:7:" + string(a % 9999)).family() == 6)',
    "versions with everything": f'{_ENDLESS}.all(a, semver("1.2.3-rc." + string(a) + "+b.1").major() == 1)',
    "quantities that are read": f'{_ENDLESS}.all(a, quantity(string(a) + "Mi").isInteger())',
    "no quantities": f'{_ENDLESS}.all(a, quantity("1.2." + string(a)).isInteger() || true)',
    "labels": f"{_ENDLESS}.all(a, !format.dns1123Label().validate(string(a)).hasValue())",
    "parts of short texts": f'{_ENDLESS}.all(a, string(a).indexOf("zz") < 0)',
    "durations of several units": f'{_ENDLESS}.all(a, duration("1h" + string(a) + "m3.5s") > duration("0s"))',
    "long durations": f"cel.bind(t, '{'1' * 3000}', {_ENDLESS}.all(a, duration(t) > duration('0s') || true))",
    "durations": f'{_ENDLESS}.all(a, duration(string(a) + "s") >= duration("0s"))',
    "times": f"{_ENDLESS}.all(a, timestamp(a).getFullYear() > 1900)",
    "times in zones": f'{_ENDLESS}.all(a, timestamp(a * 7777).getHours("Europe/Berlin") >= 0)',
    "texts of times": f'{_ENDLESS}.all(a, string(timestamp(a)) != "")',
    "texts of doubles": f'{_ENDLESS}.all(a, string(double(a) * 1.3e200) != "")',
    "quantities with suffixes": f'{_ENDLESS}.all(a, isQuantity(string(a) + "Mi"))',
    "versions with pre-releases": f'{_ENDLESS}.all(a, isSemver("1.2.3-rc." + string(a)))',
    "a long sum of durations": f"cel.bind(d, duration('1s'), {_ENDLESS}.all(a, {' + '.join(['d'] * 120)} > d))",
    "a long conjunction of lists": f"cel.bind(l, [1], {_ENDLESS}.all(a, {' && '.join(['l == l'] * 200)}))",
    "order of short texts": f'cel.bind(l, lists.range(1000).map(n, ""), {_ENDLESS}.all(a, l.isSorted()))',
    "sets of durations": f"cel.bind(l, {_DURATIONS}, {_ENDLESS}.all(a, !sets.intersects(l, [duration('1h')])))",
    "equal lists": f"cel.bind(l, {_NUMBERS}, cel.bind(m, {_NUMBERS}, {_ENDLESS}.all(a, l == m)))",
    "sums of lists": f"cel.bind(l, {_NUMBERS}, {_ENDLESS}.all(a, (l + l).size() > 0))",
    "format of a list": f'cel.bind(l, [{_NUMBERS}], {_ENDLESS}.all(a, "%s".format(l) != ""))',
    "absorbed errors": f"{_ENDLESS}.all(a, 1 / 0 == 1 || true)",
    "absorbed errors of keys": f'cel.bind(m, {{"a": 1}}, {_ENDLESS}.all(a, m["b"] == 1 || true))',
    "absorbed errors of all": f"{_ENDLESS}.all(a, 1 / (a - a) == 1)",
    "errors in filter": f"{_ENDLESS}.filter(a, 1 / (a % 2) == 1).size() > 0",
    "errors in transformMap": f"{_ENDLESS}.transformMap(i, v, 1 / (v - 50000)).size() > 0",
    "errors in map": f"{_ENDLESS}.map(a, 1 / 0).size() > 0",
    "large patterns": f"cel.bind(t, {_LETTERS}, {_ENDLESS}.all(a, !t.matches('((a{{20}}){{40}})*b')))",
    "a large pattern each turn": f"{_ENDLESS}.all(a, !'x'.matches('[^a]{{1000}}' + string(a)))",
    "a huge pattern each turn": f"{_ENDLESS}.all(a, !'x'.matches('\\\\pL{{1,63}}' + string(a)) || true)",
    "a pattern that looks far ahead": f"cel.bind(t, {_LETTERS}, {_ENDLESS}.all(a, t.findAll('A*B|').size() > 0))",
    "long URLs": f"cel.bind(t, '/%20' + {_LETTERS}, {_ENDLESS}.all(a, isURL(t)))",
    "long escaped URLs": f"cel.bind(t, lists.range(10000).map(n, '%20').join(), {_ENDLESS}.all(a, isURL('/' + t)))",
    "letters of a long text": f"cel.bind(t, {_LETTERS}, {_ENDLESS}.all(a, t.lowerAscii() != ''))",
    "a text that doubles": f"cel.bind(t, {_LETTERS}, {_ENDLESS}.all(a, dyn(t) + dyn('x') != ''))",
    "lists in lists": (
        f"cel.bind(l, lists.range(30000), cel.bind(m, lists.range(5000).map(i, l), "
        f"cel.bind(n, lists.range(5000).map(i, l + [i]), {_ENDLESS}.all(a, !(l in n)))))"
    ),
    "equal lists of equal lists": (
        f"cel.bind(l, {_NUMBERS}, cel.bind(m, lists.range(900).map(i, l.slice(0, 9000)), "
        f"cel.bind(n, lists.range(900).map(i, l.slice(0, 9000)), {_ENDLESS}.all(a, m == n))))"
    ),
    "a search among quantities": (
        f"cel.bind(l, lists.range(30000).map(i, quantity('1')), {_ENDLESS}.all(a, !(quantity('2k') in l)))"
    ),
    "order of doubles without one": (
        f"cel.bind(l, lists.range(30000).map(i, 0.0 / 0.0), {_ENDLESS}.all(a, l.isSorted()))"
    ),
    "format of texts": f"cel.bind(t, {_LETTERS}, {_ENDLESS}.all(a, '%s%s%s'.format([[t, t], t, t]) != ''))",
}


def devices() -> list[Device]:
    """With eight attributes in three domains and two capacities."""
    return [_device(number) for number in range(_DEVICES)]


def _device(number: int) -> Device:
    manifest: dict[str, Any] = {
        "name": f"gpu-{number}",
        "attributes": {
            "model": {"string": _MODELS[number % 3]},
            "healthy": {"bool": number % 7 != 0},
            "index": {"int": number},
            "uuid": {"string": f"GPU-{number:08}"},
            "driverVersion": {"version": f"1.{number % 5}.0"},
            "topology.example.com/numa": {"int": number % 2},
            "topology.example.com/rack": {"string": f"r{number % 4}"},
            "vendor.example.com/family": {"string": "data"},
        },
        "capacity": {"memory": {"value": "80Gi"}, "cores": {"value": "108"}},
    }
    return msgspec.convert(manifest, Device, dec_hook=lambda _type, raw: quantity.parse(raw))


def _microseconds(work: Callable[[], int]) -> float:
    """One of the operations whose number `work` returns, in CPU time: other processes may be busy."""
    began = time.process_time()
    count = work()
    return 1e6 * (time.process_time() - began) / count


def _best(work: Callable[[], int]) -> float:
    return min(_microseconds(work) for _ in range(PASSES))


def per_device(expression: str) -> float:
    """Microseconds of an evaluation for one device."""
    program = compile_expression(expression, environment(list_attributes=False))
    bound = [bindings_of(_DOMAIN, device, lists=False, when_read=False) for device in devices()]

    def of_all() -> int:
        for _ in range(_TURNS):
            for bindings in bound:
                assert not isinstance(bindings, str)
                program.evaluate(bindings)
        return _TURNS * len(bound)

    return _best(of_all)


def at_the_limit(expression: str) -> float:
    """Milliseconds of an evaluation."""
    program = compile_expression(expression, KUBERNETES)

    def once() -> int:
        with suppress(CelError):
            program.evaluate({})
        return 1

    return _best(once) / 1000


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro_cel", description=__doc__)
    parser.parse_args(argv)
    _show("selectors, per device", "µs", {name: per_device(each) for name, each in SELECTORS.items()})
    _show("at the limits, per evaluation", "ms", {name: at_the_limit(each) for name, each in WORST.items()})
    return 0


def _show(title: str, unit: str, figures: dict[str, float]) -> None:
    table = Table(title=title)
    table.add_column("expression")
    table.add_column(unit, justify="right")
    for name, figure in figures.items():
        table.add_row(name, f"{figure:.2f}")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
