"""Expressions as Python source: what `plan` makes closures of, without its answers for what goes wrong."""
