"""The search for devices: what a claim requests, what a node offers, and the allocation.

The name is upstream's: the package `structured` of `k8s.io/dynamic-resource-allocation`. Nothing here uses the API.
"""
