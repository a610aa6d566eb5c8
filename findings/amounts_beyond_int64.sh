#!/usr/bin/env bash
# Quantity.Value of k8s.io/apimachinery v0.37.2 gives 0 or another number for amounts that int64 cannot hold in the unit
# that is counted, and Quantity.String writes 1000E as 1. v0.38.0-beta.0 gives the nearest number of int64.
#
# kube-scheduler counts memory by Value. So up to Kubernetes 1.37 a pod that requests `memory: 10E` fits every node. A program
# that adds amounts by Value must expect that the number of a negative text is large and positive.
#
# Installs: the Go module k8s.io/apimachinery in both versions. Needs Go with access to the toolchain go1.27.3.
# Output that was seen:
#   v0.37.2: 10E is 0 as 10E; -9.5Gi is 8246196746 as -9728Mi; 1000E is 0 as 1
#   v0.38.0-beta.0: 10E is 9223372036854775807 as 10E; -9.5Gi is -10200547328 as -9728Mi; 1000E is 9223372036854775807 as 1e21
set -euo pipefail
export GOTOOLCHAIN=go1.27.3 GOFLAGS=-mod=mod

seen_with() {
  folder=$(mktemp -d)
  cd "$folder"
  cat > main.go <<'GO'
package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

func main() {
	for at, text := range []string{"10E", "-9.5Gi", "1000E"} {
		amount := resource.MustParse(text)
		if at > 0 {
			fmt.Print("; ")
		}
		again := amount.DeepCopy()
		fmt.Printf("%s is %d as %s", text, amount.Value(), again.String())
	}
	fmt.Println()
}
GO
  go mod init finding >/dev/null 2>&1
  go mod edit -require "k8s.io/apimachinery@$1"
  go mod tidy >/dev/null 2>&1
  go run .
  cd /
  rm -rf "$folder"
}

old=$(seen_with v0.37.2)
new=$(seen_with v0.38.0-beta.0)
echo "v0.37.2: $old"
echo "v0.38.0-beta.0: $new"
[ "$old" = "10E is 0 as 10E; -9.5Gi is 8246196746 as -9728Mi; 1000E is 0 as 1" ]
[ "$new" = "10E is 9223372036854775807 as 10E; -9.5Gi is -10200547328 as -9728Mi; 1000E is 9223372036854775807 as 1e21" ]
