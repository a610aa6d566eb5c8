"""What a plugin may implement (`interface`), what it may use (`handle`), and how plugins are ordered and run."""
