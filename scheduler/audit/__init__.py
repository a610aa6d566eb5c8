"""The self-audit: compare what the cache derives with the stored objects, and correct it (docs/operations.md)."""
