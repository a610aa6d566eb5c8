"""Scratch state of one attempt: typed keys, owned by the module that defines them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class StateKey(Generic[T]):
    """A typed place in a `CycleState`. Compared by identity: two keys never collide, whatever their names."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class CycleState:
    """What plugins remember between the extension points of one attempt of one pod. Never shared between attempts."""

    __slots__ = ("_values", "is_sampled", "skip_filter", "skip_score")

    def __init__(self, *, is_sampled: bool = False) -> None:
        self._values: dict[StateKey[Any], object] = {}
        self.is_sampled = is_sampled
        """This attempt's plugins are timed one by one."""
        self.skip_filter: set[str] = set()
        """Plugins whose PreFilter answered Skip: their Filter, AddPod, RemovePod and Verify are not called."""
        self.skip_score: set[str] = set()

    def set(self, key: StateKey[T], value: T) -> None:
        """Store or replace."""
        self._values[key] = value

    def get(self, key: StateKey[T]) -> T:
        """Raises KeyError naming the key when the plugin's PreFilter has not run."""
        try:
            return cast("T", self._values[key])
        except KeyError:
            raise KeyError(key.name) from None

    def has(self, key: StateKey[Any]) -> bool:
        """Whether anything is stored there."""
        return key in self._values

    def clone(self) -> CycleState:
        """For a trial: values that have a `clone` method are cloned, others are shared."""
        other = CycleState(is_sampled=self.is_sampled)
        for key, value in self._values.items():
            clone = getattr(value, "clone", None)
            other._values[key] = clone() if clone is not None else value
        other.skip_filter = set(self.skip_filter)
        other.skip_score = set(self.skip_score)
        return other
