//go:build tools

// Package tools pins the control plane that the end-to-end tests run against.
// Nothing here is compiled into Kubestow: `go build` of the imported commands is all that this module is for.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
