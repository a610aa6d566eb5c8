"""What kube-scheduler has no counterpart for: stale volume bindings, kubelet rejections, derived nominations."""
