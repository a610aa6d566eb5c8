"""Defaults, validation and older versions of the kinds that the in-process API server serves."""
