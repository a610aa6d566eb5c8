"""Declare how a document has the fields of a dataclass: one declaration, from which reading and the dump follow.

A plain field needs none: its name is spelled as in files, its type is that of its default, and a name that ends with
`_s` is a duration. A field without another default than None is an integer. `fields.read` reads a dataclass, `dump.written` writes it. Loads no reader, because help texts
need the defaults.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Final, TypedDict, Unpack

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
NO_PERCENTAGE: Final = "not in valid range [0-100]"


class FieldOptions(TypedDict, total=False):
    """What the name and the default of a field do not show."""

    absent: Any
    """Value of a document without the field, if it is not the default."""
    zero_is_default: bool
    """Whether 0 and "" mean the default, as upstream."""
    high: int
    """Largest integer; the default is that of 32 bits."""
    bounds: tuple[int, int]
    """Inclusive bounds of an integer. A value outside is refused with `why`, in Kubernetes' words."""
    why: str
    least: float
    """The shortest duration; a shorter one is refused with `why`."""
    gates: frozenset[str]
    """The field is refused with `gates_off`, and not written, unless these feature gates are on."""
    gates_off: str
    required: bool
    valid: str
    """Rule of a name, or of each name in a list: a key of `fields.RULES`."""
    upstream: Any
    """kube-scheduler's value of a switch of KubestowArgs."""
    in_files: bool
    """False if only code and tests set the field."""


def option(default: Any = dataclasses.MISSING, **form: Unpack[FieldOptions]) -> Any:
    """Return the field of a dataclass with this default."""
    return dataclasses.field(default=default, metadata=form)


def percentage() -> Any:
    """Return a field with a percentage; None if a file does not set it."""
    return option(None, bounds=(0, 100), why=NO_PERCENTAGE)


@functools.lru_cache(maxsize=256)
def spelled(name: str) -> str:
    """Return the name of a field in the spelling of a file."""
    first, *rest = name.removesuffix("_s").split("_")
    return "".join((first, *map(str.capitalize, rest))).replace("Csi", "CSI").replace("Https", "HTTPS")


def percentages(value: Any) -> Mapping[str, int]:
    """Return the percentages that a dataclass has, by their names in files. An absent one is not there."""
    found = ((each, getattr(value, each.name)) for each in dataclasses.fields(value) if is_percentage(each))
    return {spelled(each.name): held for each, held in found if held is not None}


def is_percentage(field: dataclasses.Field[Any]) -> bool:
    """Return whether `percentage` declared the field."""
    return field.metadata.get("why") == NO_PERCENTAGE
