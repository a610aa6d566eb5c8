"""Differences between the cache and the stored objects, and the forms of a check.

A check is a generator. Each step compares one object, or a few, with values that are computed in the same step. So a change
between two steps is no difference. The step also corrects what it found, before it yields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

K = TypeVar("K")
G = TypeVar("G", bound=Hashable)

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
            held, expected = cached(key), stored(key)
            if held != expected:
                found.about = about(key)
                found.compare(held, expected)
                heal(key)
        yield found


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


class TwoWay(msgspec.Struct, Generic[K, G], frozen=True):
    """An index group → keys, with a value for each, and the groups and values that follow from the object of a key."""

    about: Callable[[K], str]
    keys: Iterable[K]
    stored: Callable[[K], Mapping[G, object]]
    groups: Iterable[G]
    members: Callable[[G], Iterable[K]]
    cached: Callable[[G, K], object]
    """The value of a key in a group; None if it is not there."""
    heal: Callable[[G, K], object]

    def steps(self, ready: Callable[[], object] = bool) -> Steps:
        """Compare by key, which finds missing entries, and by group, which finds those that no object explains."""
        for keys in in_parts(self.keys):
            ready()
            yield self._compared((key, self.stored(key)) for key in keys)
        for group in tuple(self.groups):
            for keys in in_parts(self.members(group)):
                ready()
                yield self._compared((key, {group: self.stored(key).get(group)}) for key in keys)

    def _compared(self, pairs: Iterable[tuple[K, Mapping[G, object]]]) -> Comparison:
        found = Comparison("")
        for key, stored in pairs:
            for group, value in stored.items():
                cached = self.cached(group, key)
                if cached is not value and cached != value:
                    found.about = self.about(key)
                    found.differs(f"{group}", cached, value)
                    self.heal(group, key)
        return found


def grouped(
    about: str,
    keys: Iterable[K],
    groups: Callable[[K], Collection[G]],
    index: dict[G, Any],
    *,
    healed: Callable[[K], object] = bool,
    value: Callable[[K], object] | None = None,
) -> Steps:
    """Compare an index group → key → value of stored dicts, and correct it entry by entry. Without `value` it is None."""

    def stored(key: K) -> Mapping[G, object]:
        return dict.fromkeys(groups(key), value(key) if value is not None else True)

    def cached(group: G, key: K) -> object:
        members = index.get(group, {})
        return members[key] if value is not None and key in members else key in members or None

    def heal(group: G, key: K) -> None:
        members = index.setdefault(group, {})
        if group in groups(key):
            members[key] = value(key) if value is not None else None
        else:
            members.pop(key, None)
        if not members:
            del index[group]
        healed(key)

    return TwoWay(
        lambda key: f"{about} {key}", keys, stored, index, lambda group: index.get(group, ()), cached, heal
    ).steps()
