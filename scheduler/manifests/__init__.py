"""Manifests to pods and claims, as the API server and the controllers of kube-controller-manager create them."""
