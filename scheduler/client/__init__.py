"""Requests of a command-line user to the running scheduler, with the credentials of the user's kubeconfig.

`leader` finds the pod that leads, `port_forward` opens a tunnel to it through the API server, and `debug_request` sends
one request. Nothing here is used by the daemon.
"""
