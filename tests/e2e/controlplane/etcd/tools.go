//go:build tools

// Package tools pins the etcd that the end-to-end control plane stores its objects in.
package tools

import _ "go.etcd.io/etcd/server/v3"
