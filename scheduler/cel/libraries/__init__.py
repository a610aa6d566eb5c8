"""What expressions can call: one module per subject, each with a tuple of overloads."""
