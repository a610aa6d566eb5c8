"""Credentials for the API server: kubeconfigs, and the plugins that they name."""
