"""The functions of expressions: one module per subject, each with a tuple of overloads."""
