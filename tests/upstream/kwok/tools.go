//go:build tools

// Package tools pins kwok, which plays the kubelets of the nodes that Kubernetes' end-to-end tests use.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
