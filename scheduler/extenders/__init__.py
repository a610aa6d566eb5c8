"""HTTP extenders: messages, calls, and the whole objects that they are sent (docs/extenders.md)."""
