"""Extenders: attempts that wait for them, messages, calls, and the whole objects that they are sent (docs/extenders.md)."""
