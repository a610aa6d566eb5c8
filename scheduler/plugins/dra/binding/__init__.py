"""What PreBind writes: allocations and reservations of claims, claims for extended resources, and the checks before."""
