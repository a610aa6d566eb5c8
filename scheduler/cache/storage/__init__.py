"""Claims, volumes, storage classes, storage capacity and its reservations, attach limits."""
