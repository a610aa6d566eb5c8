"""Differences between the cache and the stored objects, and the forms of a check.

A check is a generator. Each step compares one object, or a few, with values that are computed in the same step. So a change
between two steps is no difference. The step also corrects what it found, before it yields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import countOf
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

K = TypeVar("K")
T = TypeVar("T", bound=Hashable)
G = TypeVar("G", bound=Hashable)

_MANY: Final = 50
_SOME: Final = 10
"""Entries of one step, where an entry costs as much as the pods of a node."""


class Difference(NamedTuple):
    """One value of the cache, and the value that follows from the stored objects."""

    about: str
    """The object: `node n1`, `claim default/data`."""
    field: str
    cached: object
    stored: object


Steps: TypeAlias = Iterator[Sequence[Difference]]
"""The steps of a check: the differences of one object each."""
Check: TypeAlias = Callable[[], Steps]

BEHIND: Final = 64
"""An index that has more changes to process than this is not compared: its next reader computes it, for many milliseconds."""


class Comparison(list[Difference]):
    """The differences of one object."""

    __slots__ = ("about",)

    def __init__(self, about: str) -> None:
        super().__init__()
        self.about = about

    def differs(self, field: str, cached: object, stored: object) -> bool:
        """Compare two values, and add a difference unless they are equal. Return whether they differ."""
        if cached == stored:
            return False
        self.append(Difference(self.about, field, cached, stored))
        return True

    def compare(self, cached: Mapping[K, object], stored: Mapping[K, object]) -> bool:
        """Compare values by field; a field that one side lacks is None there. Return whether they differ."""
        if cached == stored:
            return False
        for field in {**cached, **stored}:
            self.differs(str(field), cached.get(field), stored.get(field))
        return True


def in_parts(things: Iterable[K], size: int = _SOME) -> Iterator[Sequence[K]]:
    """Yield the present things, some at a time. Things that are added later are left out."""
    now = tuple(things)
    return (now[at : at + size] for at in range(0, len(now), size))


def by_key(
    keys: Iterable[K],
    about: Callable[[K], str],
    cached: Callable[[K], Mapping[Any, object]],
    stored: Callable[[K], Mapping[Any, object]],
    heal: Callable[[K], object],
    *,
    ready: Callable[[], object] = bool,
) -> Steps:
    """Compare what an index holds for each key with what follows from the stored objects, and heal what differs.

    `ready` is called before each step, for an index that processes changes when it is read.
    """
    for some in in_parts(keys):
        ready()
        found = Comparison("")
        for key in some:
            here, there = cached(key), stored(key)
            if here != there:
                found.about = about(key)
                found.compare(here, there)
                heal(key)
        yield found


def _nothing(_: object) -> None:
    """Return what a set stored as a dict has as its values."""


@dataclass(frozen=True, slots=True)
class Grouped(Generic[T, G]):
    """An index group → keys, and the groups that follow from the object of a key; none for an object that is gone.

    `value` is what a key has in the index, which is corrected key by key. `healed` is called for each corrected key.
    """

    about: str
    keys: Iterable[T]
    groups: Callable[[T], Collection[G]]
    index: dict[G, Any]
    healed: Callable[[T], object] = bool
    value: Callable[[T], object] = _nothing
    ready: Callable[[], object] = bool

    def steps(self) -> Steps:
        """Compare by key, which finds missing entries, and by group, which finds those that no object explains."""
        for keys in in_parts(self.keys, _MANY):
            self.ready()
            found = Comparison("")
            for key in keys:
                for group in self.groups(key):
                    self._compare(found, group, key, is_there=True)
            yield found
        for group in tuple(self.index):
            for keys in in_parts(self.index.get(group, ()), _MANY):
                self.ready()
                found = Comparison("")
                for key in keys:
                    self._compare(found, group, key, is_there=group in self.groups(key))
                yield found

    def _compare(self, found: Comparison, group: G, key: T, *, is_there: bool) -> None:
        here = self.index.get(group, {})
        if (key in here) == is_there and (not is_there or here[key] is self.value(key)):
            return
        found.about = f"{self.about} {key}"
        found.differs(f"in {group}", "another" if key in here and is_there else key in here, is_there)
        if is_there:
            self.index.setdefault(group, {})[key] = self.value(key)
        elif here.pop(key, self) is not self and not here:
            del self.index[group]
        self.healed(key)


def faultless(about: str, faults: Iterable[Sequence[str]], heal: Callable[[], object]) -> Steps:
    """Expect that an index finds no fault in itself; else fill it again, and end."""
    for each in faults:
        found = Comparison(about)
        found.compare(dict.fromkeys(each, "inconsistent"), {})
        if found:
            heal()
        yield found
        if found:
            return


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """An index of items by slot, and the items that the stored objects of a slot have, with repeats."""

    name: str
    known: Callable[[], Iterable[T]]
    slots: Callable[[T], Iterable[int]]
    count: Callable[[int, T], int]
    stored: Callable[[int], Iterable[T]]
    heal: Callable[[], object]

    def steps(self, capacity: int, about: Callable[[int], str]) -> Steps:
        """Compare by slot, which finds missing items, and by item, which finds those that no object explains."""
        for slot in range(capacity):
            found = Comparison(about(slot))
            for item, count in Counter(iter(self.stored(slot))).items():
                if (cached := self.count(slot, item)) != count:
                    found.differs(f"{self.name} {item}", cached, count)
            yield self._healed(found)
        for item in tuple(self.known()):
            for some in in_parts(self.slots(item)):
                found = Comparison("")
                for slot in some:
                    cached, count = self.count(slot, item), countOf(self.stored(slot), item)
                    if cached != count:
                        found.about = about(slot)
                        found.differs(f"{self.name} {item}", cached, count)
                yield self._healed(found)

    def _healed(self, found: Comparison) -> Comparison:
        if found:
            self.heal()
        return found
