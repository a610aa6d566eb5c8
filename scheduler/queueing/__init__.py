"""The parts of the scheduling queue; `scheduler.queue` combines them. Rules: docs/spec/core.md §1."""
