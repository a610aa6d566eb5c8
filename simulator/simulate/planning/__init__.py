"""Planning: changes of the input cluster, what they change, and how many nodes are needed."""
