"""Explanations of groups of pods."""
