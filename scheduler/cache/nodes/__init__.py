"""Nodes as columns, and indexes of nodes: labels, groups, topology, images."""
