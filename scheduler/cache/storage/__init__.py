"""Claims, volumes, storage classes, capacity and its reservations, attach limits."""
