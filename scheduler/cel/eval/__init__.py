"""Code generation from a checked tree to closures, and evaluation within a cost limit and a deadline."""
