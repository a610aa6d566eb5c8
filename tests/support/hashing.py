"""A text that counts its hashes: Python does not keep the hash of a tuple, but computes it from all its parts each time."""


class HashedText(str):
    """A text that counts how often the hash of any such text is computed."""

    __slots__ = ()
    hashes = 0

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    def __hash__(self) -> int:
        HashedText.hashes += 1
        return super().__hash__()
