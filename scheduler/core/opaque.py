"""Parameters of drivers in claims and device classes: JSON of which the bytes are kept, whatever else is decoded leniently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from scheduler.core import apijson
from scheduler.core.meta import Frozen

_CONFIGS: Final = (("spec", "config"), ("spec", "devices", "config"), ("status", "allocation", "devices", "config"))
"""Where a device class or a claim has `opaque` configurations."""


class _Opaque(Frozen, frozen=True):
    parameters: msgspec.Raw = msgspec.Raw(b"null")


class _Config(Frozen, frozen=True):
    opaque: _Opaque | None = None


_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_configs: Final = msgspec.json.Decoder(tuple[_Config | None, ...])


def with_raw_parameters(plain: Any, raw: bytes | msgspec.Raw) -> Any:
    """Change `plain`, which was decoded from `raw`, so that its parameters are the bytes of `raw`. Return it."""
    for path in _CONFIGS:
        opaque = list(_opaque(plain, path))
        if not opaque:
            continue
        try:
            found = apijson.decode(_configs, _at(raw, path))
        except (KeyError, msgspec.DecodeError, ValueError):
            continue
        for at, config in opaque:
            entry = found[at]
            if entry is not None and entry.opaque is not None:
                config["parameters"] = entry.opaque.parameters
    return plain


def as_raw(manifest: Any) -> Any:
    """Return `manifest` with the parameters encoded. The manifest itself stays as it is."""
    for path in _CONFIGS:
        if any(not isinstance(config["parameters"], msgspec.Raw) for _, config in _opaque(manifest, path)):
            manifest = _replaced(manifest, path)
    return manifest


def _opaque(plain: Any, path: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each `opaque` that has parameters, and its index."""
    for step in path:
        plain = plain.get(step) if isinstance(plain, dict) else None
    for at, config in enumerate(plain if isinstance(plain, (list, tuple)) else ()):
        opaque = config.get("opaque") if isinstance(config, dict) else None
        if isinstance(opaque, dict) and opaque.get("parameters") is not None:
            yield at, opaque


def _at(raw: bytes | msgspec.Raw, path: tuple[str, ...]) -> bytes | msgspec.Raw:
    for step in path:
        raw = apijson.decode(_fields, raw)[step]
    return raw


def _replaced(manifest: Any, path: tuple[str, ...]) -> Any:
    if path:
        return {**manifest, path[0]: _replaced(manifest[path[0]], path[1:])}
    return [_encoded(config) for config in manifest]


def _encoded(config: Any) -> Any:
    opaque = config.get("opaque") if isinstance(config, dict) else None
    if not isinstance(opaque, dict) or opaque.get("parameters") is None:
        return config
    parameters = opaque["parameters"]
    if isinstance(parameters, msgspec.Raw):
        return config
    return config | {"opaque": opaque | {"parameters": msgspec.Raw(msgspec.json.encode(parameters))}}
