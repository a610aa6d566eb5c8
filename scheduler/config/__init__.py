"""KubeSchedulerConfiguration v1: schema, defaults, and validation with the path of every error.

`load.load` reads a file into the types of `types`. `plugins.resolve` turns a profile's plugin sets into one ordered
list per extension point. This package knows upstream's plugin names, but not which plugins are built.
"""
