"""Decode JSON as the API server emits it, where msgspec refuses it.

Any user can store such an object, and one item must not make its whole list unreadable:

** Nesting of up to 10,000 levels, also in fields that are skipped. The interpreter's limit depends on its version:
  the recursion limit in 3.11, about 1500 levels in 3.12, and about 10,000 levels in 3.13 and later.
* Escaped lone surrogates in raw JSON, such as the opaque parameters of a claim. Go reads them as U+FFFD.

Ordinary input has no extra cost, because only a failed decode is repeated.
"""

from __future__ import annotations

import re
import sys
from typing import Final, TypeVar

import msgspec
import numpy as np

T = TypeVar("T")

_SERVER_LEVELS: Final = 10_000
_KEPT_LEVELS: Final = 200
"""No field that is read is nested deeper than about 20 levels."""
_SURROGATES: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)"  # an even number of backslashes
    rb"(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Escaped surrogates: pairs are group 2."""
CUT: Final = b"kubestow.dev/nested-too-deeply"
"""The JSON string that replaces values that are nested too deeply for this interpreter."""


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    """Decode `raw`, with the same errors as `decoder.decode`, but without RecursionError.

    If the interpreter cannot decode all levels, containers below level 200 are replaced by the string `CUT`. A caller
    that passes raw JSON on must check for it.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        mended = without_lone_surrogates(bytes(raw))
    limit = sys.getrecursionlimit()
    # Only around a decoder, which needs about 200 bytes of stack per level. Python code may need much more stack.
    sys.setrecursionlimit(limit + 2 * _SERVER_LEVELS)
    try:
        return decoder.decode(mended)
    except RecursionError:
        return decoder.decode(cut_below(mended, _KEPT_LEVELS))
    finally:
        sys.setrecursionlimit(limit)


def without_lone_surrogates(raw: bytes) -> bytes:
    """Return `raw` with each escaped surrogate that has no partner replaced by the escape of U+FFFD, as Go reads it."""
    if rb"\ud" not in raw and rb"\uD" not in raw:
        return raw
    return _SURROGATES.sub(lambda found: found[1] + (found[2] or rb"\ufffd"), raw)


def cut_below(raw: bytes, levels: int) -> bytes:
    """Return `raw` with each object or list below `levels` levels replaced by the string `CUT`.

    The cost is about 20 ns per byte. Input that is not valid JSON stays invalid.
    """
    plain = np.frombuffer(raw.replace(b"\\\\", b"__").replace(b'\\"', b"__"), np.uint8)
    is_outside = np.cumsum(plain == ord('"'), dtype=np.int32) & 1 == 0
    opens = is_outside & ((plain == ord("{")) | (plain == ord("[")))
    closes = is_outside & ((plain == ord("}")) | (plain == ord("]")))
    depth = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
    starts = np.flatnonzero(opens & (depth == levels + 1))
    ends = np.flatnonzero(closes & (depth == levels))
    pieces, at = [], 0
    for start, end in zip(starts.tolist(), ends.tolist()):
        pieces += [raw[at:start], b'"', CUT, b'"']
        at = end + 1
    return b"".join([*pieces, raw[at:]])
