"""Random selectors whose estimated cost depends on sizes: of parts of the device, of literals, and of results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

_DOMAINS: Final = ("a.example.com", "dra.example.com")
_NAMES: Final = ("model", "index", "healthy")
_WORDS: Final = ("''", "'a'", "'A100'", "'0123456789abcdef0123456789abcdef'", "'größe'")
_COMPREHENSIONS: Final = ("all", "exists", "exists_one")


class RandomSelectors:
    """Draws expressions by type. Most are well typed; the compiler refuses the rest."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._names: list[str] = []
        """Variables of the enclosing macros."""

    def selector(self) -> str:
        return self._bool(3)

    def _one(self, *choices: Callable[[], str]) -> str:
        return self._rng.choice(choices)()

    def _number(self, depth: int) -> str:
        if depth <= 0:
            return str(self._rng.choice((0, 1, 2, 7, 1000)))
        return self._one(
            lambda: f"size({self._text(depth - 1)})",
            lambda: f"{self._list(depth - 1)}.size()",
            lambda: f"({self._number(depth - 1)} + {self._number(depth - 1)})",
            lambda: f"int({self._attribute()})",
            lambda: f"{self._text(depth - 1)}.indexOf({self._text(0)})",
            lambda: f"{self._numbers(depth - 1)}.sum()",
            lambda: f"device.capacity['{self._rng.choice(_DOMAINS)}'].memory.asInteger()",
        )

    def _attribute(self) -> str:
        domain, name = self._rng.choice(_DOMAINS), self._rng.choice(_NAMES)
        forms = (f".{name}", f"['{name}']", f".?{name}.orValue('x')", f"[?'{name}'].orValue(1)")
        return f"device.attributes['{domain}']{self._rng.choice(forms)}"

    def _text(self, depth: int) -> str:
        if depth <= 0:
            variables = [lambda: f"string({self._rng.choice(self._names)})"] * bool(self._names)
            return self._one(lambda: self._rng.choice(_WORDS), lambda: "device.driver", self._attribute, *variables)
        inner = self._text(depth - 1)
        return self._one(
            lambda: f"string({self._attribute()})",
            lambda: f"({inner} + {self._text(depth - 1)})",
            lambda: f"{inner}.{self._rng.choice(('lowerAscii', 'upperAscii', 'trim'))}()",
            lambda: f"{inner}.substring(1)",
            lambda: f"{inner}.replace({self._text(0)}, {self._text(0)})",
            lambda: f"{self._texts(depth - 1)}.join({self._text(0)})",
            lambda: f"{inner}.find('[a-z]+')",
            lambda: f"string(bytes({inner}))",
            lambda: f"strings.quote({inner})",
            lambda: f"'%s-%d'.format([{inner}, 1])",
            lambda: f"({self._bool(depth - 1)} ? {inner} : {self._text(depth - 1)})",
            lambda: f"{self._texts(depth - 1)}[0]",
            lambda: f"dyn({inner})",
            lambda: f"url({inner}).getHost()",
        )

    def _texts(self, depth: int) -> str:
        if depth <= 0:
            return f"[{', '.join(self._text(0) for _ in range(self._rng.randrange(3)))}]"
        return self._one(
            lambda: f"{self._text(depth - 1)}.split({self._text(0)})",
            lambda: f"{self._text(depth - 1)}.split(',', 3)",
            lambda: f"{self._text(depth - 1)}.findAll('[0-9]')",
            lambda: f"({self._texts(depth - 1)} + {self._texts(depth - 1)})",
            lambda: f"{self._list(depth - 1)}.map({self._variable(lambda name: f'string({name})')})",
            lambda: f"{self._texts(depth - 1)}.{self._rng.choice(('distinct', 'sort', 'reverse'))}()",
        )

    def _numbers(self, depth: int) -> str:
        if depth <= 0:
            return f"[{', '.join(self._number(0) for _ in range(self._rng.randrange(4)))}]"
        return self._one(
            lambda: f"lists.range({self._number(0)})",
            lambda: f"{self._numbers(depth - 1)}.slice(0, {self._number(0)})",
            lambda: f"{self._texts(depth - 1)}.map({self._variable(lambda name: f'size({name})')})",
            lambda: f"[{self._numbers(depth - 1)}].flatten()",
        )

    def _list(self, depth: int) -> str:
        return self._one(
            lambda: self._texts(depth),
            lambda: self._numbers(depth),
            lambda: "device.attributes",
            lambda: f"device.attributes['{self._rng.choice(_DOMAINS)}']",
            lambda: "device.capacity",
            lambda: f"{{{self._text(0)}: {self._text(0)}, 'k': 'v'}}",
        )

    def _variable(self, body: Callable[[str], str], value: str = "") -> str:
        """Return `name, body` or `name, value, body`."""
        name = f"x{len(self._names)}"
        self._names.append(name)
        text = body(name)
        self._names.pop()
        return f"{name}, {value}, {text}" if value else f"{name}, {text}"

    def _loop(self, depth: int) -> str:
        over, macro = self._list(depth - 1), self._rng.choice(_COMPREHENSIONS)
        if self._rng.random() < 0.3:
            self._names.append("v")
            inner = f"{over}.{macro}(i, v, {self._bool(depth - 1)} && v == v && i != i)"
            self._names.pop()
            return inner
        body = self._variable(lambda name: f"{self._bool(depth - 1)} && {name} == {self._text(0)}")
        return f"{over}.{macro}({body})"

    def _bound(self, depth: int) -> str:
        def body(name: str) -> str:
            return f"{self._bool(depth - 1)} || {name} == {name}"

        value = self._one(lambda: self._text(depth - 1), lambda: self._list(depth - 1), self._attribute)
        return f"cel.bind({self._variable(body, value)})"

    def _bool(self, depth: int) -> str:
        if depth <= 0:
            return self._one(
                lambda: "true",
                lambda: f"{self._attribute()} == {self._rng.choice(_WORDS)}",
                lambda: "device.allowMultipleAllocations",
            )
        text, other = self._text(depth - 1), self._text(depth - 1)
        operator = self._rng.choice(("==", "!=", "<", ">="))
        return self._one(
            lambda: f"({self._bool(depth - 1)} && {self._bool(depth - 1)})",
            lambda: f"({self._bool(depth - 1)} || !{self._bool(depth - 1)})",
            lambda: f"{text} {operator} {other}",
            lambda: f"{text}.{self._rng.choice(('startsWith', 'endsWith', 'contains', 'matches'))}({other})",
            lambda: f"{text} in {self._list(depth - 1)}",
            lambda: f"{self._number(depth)} {operator} {self._number(depth - 1)}",
            lambda: f"{self._list(depth)} {self._rng.choice(('==', '!='))} {self._list(depth)}",
            lambda: self._loop(depth),
            lambda: self._loop(depth),
            lambda: self._bound(depth),
            lambda: (
                f"sets.{self._rng.choice(('contains', 'intersects', 'equivalent'))}({self._texts(1)}, {self._texts(1)})"
            ),
            lambda: f"semver({text}).isGreaterThan(semver('1.2.3'))",
            lambda: f"quantity({text}) == device.capacity['{self._rng.choice(_DOMAINS)}'].memory",
            lambda: f"isIP({text}) && ip({text}) == ip('10.0.0.1')",
            lambda: f"cidr('10.0.0.0/8').containsIP({text})",
            lambda: f"cidr({text}).containsCIDR('10.0.0.0/8')",
            lambda: f"url({text}) == url({other})",
            lambda: f"device.attributes['{self._rng.choice(_DOMAINS)}'].?model.optMap(m, m == {text}).orValue(false)",
            lambda: f"!format.dns1123Label().validate({text}).hasValue()",
            lambda: (
                f"{self._list(depth - 1)}.map({self._variable(lambda name: f'[{name}, {name}]')}).exists(y, y == [{text}])"
            ),
            lambda: f"has(device.attributes['{self._rng.choice(_DOMAINS)}'].model)",
            lambda: f"{self._texts(depth - 1)}.sortBy(s, s.size())[0] == {text}",
            lambda: f"type({text}) == string",
        )
