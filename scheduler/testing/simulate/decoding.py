"""Manifests read as the scheduler will read them, so that a mistake is found before anything runs."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from scheduler.core.decode import from_manifest
from scheduler.testing.simulate.manifests import Found, InputError, Manifest

T = TypeVar("T")


def decoded(found: Found, typ: type[T], value: Manifest) -> T:
    """`value` is the object, perhaps completed. Raises InputError with the field."""
    try:
        return from_manifest(typ, value)
    except (msgspec.ValidationError, ValueError) as error:
        message, _, path = str(error).rpartition(" - at `$.")
        raise (found.wrong(path.rstrip("`"), message) if message else InputError(f"{found.where}: {error}")) from error
