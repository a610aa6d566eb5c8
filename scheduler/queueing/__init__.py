"""The parts of the scheduling queue; `scheduler.queue` puts them together. Rules: docs/spec/core.md §1."""
