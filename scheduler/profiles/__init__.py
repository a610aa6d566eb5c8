"""Profiles: built from the configuration, and changed while the scheduler runs."""
