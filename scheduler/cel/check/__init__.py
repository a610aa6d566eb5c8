"""Types, overloads and validation of a parsed expression."""
