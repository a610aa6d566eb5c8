"""Plain values and rules without I/O, clock or asyncio. This package imports no other package of the project."""
