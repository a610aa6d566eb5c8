"""Counts of pods by selector and by affinity term, updated with each pod."""
