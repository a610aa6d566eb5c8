"""Groups of pods that start together: the search for their nodes, the verdicts, and what is reported about the group."""
