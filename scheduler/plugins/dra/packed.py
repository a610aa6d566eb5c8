"""Amounts of several things packed into one integer, with a spare bit between, so that all are compared at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Packed(NamedTuple):
    """How amounts are packed: one field for each, with its highest bit spare."""

    shifts: tuple[int, ...]
    widths: tuple[int, ...]
    guards: int

    def covers(self, more: int, less: int) -> bool:
        """Whether none of these amounts is the larger one in the second."""
        return (more | self.guards) - less & self.guards == self.guards

    def fields(self, packed: int) -> list[int]:
        """The amounts."""
        return [packed >> shift & (1 << width) - 1 for shift, width in zip(self.shifts, self.widths, strict=True)]

    def pack(self, amounts: Sequence[int]) -> int:
        """Of amounts that are too large the largest that there can be."""
        return sum(
            min(amount, (1 << width - 1) - 1) << shift
            for amount, shift, width in zip(amounts, self.shifts, self.widths, strict=True)
        )


def packed_for(largest: Sequence[int]) -> Packed:
    """So that amounts up to these can be held."""
    widths = [each.bit_length() + 1 for each in largest]
    shifts = [sum(widths[:at]) for at in range(len(widths))]
    return Packed(tuple(shifts), tuple(widths), sum(1 << at + width - 1 for at, width in zip(shifts, widths)))
