"""Metrics and logs. Nothing here knows pods, nodes or the API."""
