"""The workload controllers of kube-controller-manager: they create and delete pods as the stored workloads ask for."""
