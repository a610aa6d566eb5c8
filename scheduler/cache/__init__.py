"""What decisions read: nodes as columns, the pods on them, and our own assumptions. Single owner: the scheduling loop."""
