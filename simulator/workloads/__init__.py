"""The workload controllers of kube-controller-manager: they create and delete the pods of the stored workloads."""
