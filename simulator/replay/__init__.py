"""`kubestow record` and `kubestow replay`: a history of a cluster, and the same history under another configuration."""
