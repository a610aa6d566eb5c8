"""Controllers that kube-scheduler does not have: stale volume bindings, kubelet rejections, derived nominations."""
