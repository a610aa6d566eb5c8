"""Every write to a cluster: one function each, with its precondition."""
