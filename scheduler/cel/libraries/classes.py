"""Which class the values of a type have, of the types that have one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.cel.amounts import Amount
from scheduler.cel.libraries.formats import Format
from scheduler.cel.libraries.networks import CIDRValue, IPValue
from scheduler.cel.libraries.urls import URLValue
from scheduler.cel.semver import Semver
from scheduler.cel.values import Duration, Optional, Timestamp, TypeValue

_VALUES: Final = (Amount, Semver, URLValue, IPValue, CIDRValue, Format, Timestamp, Duration, TypeValue, Optional)

CLASSES: Final[Mapping[str, type]] = {each.cel_type: each for each in _VALUES}
"""By the name of the type."""
