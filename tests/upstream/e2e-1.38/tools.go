//go:build tools

// Package tools pins Kubernetes' end-to-end tests.
package tools

import (
	_ "k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e/dra"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
)
