"""Counts of pods by selector and by affinity term, maintained as pods come and go."""
