"""The edge to the API server: everything that is sent to it or received from it passes here.

`transport` moves bytes and turns refusals into the types of `core.errors`; `kinds` says what is watched and in which
version; `reflector` and `store` mirror one kind each; `writes` holds every change Kubestow makes to a cluster, one
function per change; `recorder` posts Events; `throttle` keeps all of them within `clientConnection.qps` and `burst`.

Knows nothing of scheduling. The decision rooms never import it: they read the cache and write through ports.
"""
