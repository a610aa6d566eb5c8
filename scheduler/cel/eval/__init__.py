"""From a checked tree to closures, and their evaluation within a cost limit and a deadline."""
