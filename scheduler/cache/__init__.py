"""The data for decisions: nodes as columns, their pods, and assumptions. Only the scheduling loop uses and changes it."""
