"""Write down what upstream's library reads in quantities. Needs Go.

python -m tests.unit.api.goldens.regenerate
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
_SUFFIXES: Final = ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_NUMBERS: Final = (
    *("0", "1", "-1", "1.5", "-1.5", ".5", "5.", "0.1", "0.0000000001", "-0.0000000001", "999999999999999999"),
)
_EDGES: Final = (
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "8Ei"),
    *("7.99999999999999999999Ei", "-8Ei", "9223372036854775807n", "18446744073709551616", "36893488147419103232"),
    *("99999999999Ki", "999999999999Ki", "1.0000000001Ki", "1000000000000000000", "0.0000000000", "0.0000000000Ki"),
)
_EXPONENTS: Final = (
    *("1e3", "1E3", "1e+3", "1e-3", "1e-9", "1e-10", "1e18", "1e19", "1e30", "1e99", "1e400", "1e9999", "1e99999"),
    *("-1e99999", "0e99999", "1e-99999", "-1e-99999", "1.5e-9", "1e00000000000000000000000000003"),
    *("1e-00000000000000000000003", "1234567890123456789e5", "1234567890123456789e-5", "1234567890123456789e-30"),
    "0.000000000000000001e30",
)
_VAST: Final = (
    *("1e2147483647", "1e4294967295", "1e4294967296", "1e4294967299", "1e-4294967293", "1e9223372036854775807"),
    *("1e-9223372036854775808", "1.5e-2147483648", "12.25e-2147483647", "5e1000000000"),
)
_REFUSED: Final = (
    *("", " ", "x", "1 ", " 1", "1 Gi", "1gi", "1KiB", "--1", "+-1", "1e", "1e+", "1e3k", "1Ee3", "1ee3", "1i", "1Kim"),
    *("1mm", "1k3", "1K", "0x10", "1_000", "1e1_0", "1e9223372036854775808", "1e-9223372036854775809", "1.2.3", "1,5"),
    *("\u0661", "NaN", "inf", "1e3.5", "1E+", "e", ".Ei", "-.Pi", "e-10", ".e-10", "1\n", "1e3\n", "1Gi-", "1m+3"),
)
_BARE: Final = ("+", "-", ".", "-.", "m", "Ki", "E", "e5", ".k", "-n", "+.Gi")
_LONG: Final = (
    {"head": "", "middle": "9", "times": 1000},
    {"head": "1", "middle": "0", "times": 1000},
    {"head": "-", "middle": "9", "times": 5000, "tail": "Ki"},
    {"head": "", "middle": "0", "times": 5000, "tail": "17Gi"},
    {"head": "0.", "middle": "0", "times": 5000, "tail": "1"},
    {"head": "1.", "middle": "9", "times": 5000, "tail": "Mi"},
    {"head": "1.", "middle": "0", "times": 5000, "tail": "1Ei"},
    {"head": "0.", "middle": "3", "times": 5000, "tail": "Ei"},
    {"head": "0.", "middle": "3", "times": 5000, "tail": "e25"},
    {"head": "", "middle": "7", "times": 5000, "tail": "e-4990"},
    {"head": "", "middle": "7", "times": 5000, "tail": "e-6000"},
    {"head": "5e", "middle": "0", "times": 5000, "tail": "3"},
    {"head": "5e", "middle": "9", "times": 5000},
    {"head": "5", "middle": "m", "times": 5000},
    {"head": "5", "middle": "0", "times": 5000, "tail": "x"},
)
_RANDOM: Final = 300


def main() -> None:
    """Run the Go program and write `quantities.jsonl`."""
    texts = [*_EDGES, *_EXPONENTS, *_REFUSED, *_BARE, *map("".join, itertools.product(_NUMBERS, _SUFFIXES))]
    texts += _random_texts(random.Random(19))
    asked: list[dict[str, Any]] = [{"head": text} for text in dict.fromkeys(texts)]
    asked += [{"head": text, "vast": True} for text in _VAST]
    asked += _LONG
    told = subprocess.run(
        ["go", "run", "."],
        cwd=HERE / "oracle",
        input="\n".join(map(json.dumps, asked)),
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    (HERE / "quantities.jsonl").write_text(told)


def _random_texts(rng: random.Random) -> Iterator[str]:
    """Numbers of up to 40 digits, and characters of numbers in any order."""
    for _ in range(_RANDOM):
        digits = "".join(rng.choices("0123456789", k=rng.choice((1, 3, 12, 17, 18, 19, 20, 40))))
        point = rng.randint(0, len(digits))
        number = digits[:point] + rng.choice(("", ".")) + digits[point:]
        exponent = f"{rng.choice('eE')}{rng.choice(('', '+', '-'))}{rng.randint(0, 60)}"
        yield rng.choice(("", "", "-", "+")) + number + rng.choice((*_SUFFIXES, exponent, exponent))
    for _ in range(_RANDOM):
        yield "".join(rng.choices("0123456789.+-eEinumkKMGTP", k=rng.randint(1, 6)))


if __name__ == "__main__":
    main()
