"""The edge to the API server: everything sent to it or received from it.

`transport` moves bytes and turns refusals into the types of `core.errors`. `resources` lists the watched kinds and
their versions. `reflector` and `store` keep the objects of one kind. `writes` has every change of a cluster, one
function per change. `events` posts Events. `rate_limit` keeps all of them within `clientConnection.qps` and `burst`.

Knows nothing of scheduling. Decision code never imports this package: it reads the cache and writes through ports.
"""
