"""What a plugin may implement (`points`), what it may use (`ports`), and how plugins are ordered and run."""
