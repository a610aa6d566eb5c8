"""What the daemon says about itself over HTTP, and what it remembers of its decisions."""
