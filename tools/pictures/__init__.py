"""Draw the pictures of the documentation: `python -m tools.pictures`."""
