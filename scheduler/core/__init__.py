"""Plain values and rules: no I/O, no clock, no asyncio. Everything above may import this; it imports nothing of ours."""
