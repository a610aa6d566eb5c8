"""KubeSchedulerConfiguration v1: schema, defaults, and validation that names the place of every error.

`load.load` reads a file, `types` says what comes out, `plugins.resolve` turns a profile's plugin sets into one
ordered list per extension point. Knows which names upstream has, not which of them are built.
"""
