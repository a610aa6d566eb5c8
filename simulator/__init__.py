"""The testing kit, shipped: builders, virtual clock, in-process API server, actors, invariants.

Also what `simulate` stands on. Nothing of the product below the command line imports it.
"""
