#!/usr/bin/env bash
# An update of a status that names no generateName removes it from the stored object, although it keeps labels,
# annotations, owners and finalizers: metav1.ResetObjectMetaForStatus of k8s.io/apimachinery copies all of these from the
# stored object, but not generateName. kube-apiserver calls it for the status of ResourceClaims, for one, and validates no
# change of generateName.
#
# A client that replaces a status must send back the generateName that it read. An admission policy that lets a status change no
# metadata refuses the update otherwise.
#
# Installs: the Go module k8s.io/apimachinery v0.37.2. Needs Go with access to the toolchain go1.27.3.
# Output that was seen: v0.37.2: labels kept, annotations kept, owners kept, finalizers kept, generateName removed
set -euo pipefail
export GOTOOLCHAIN=go1.27.3 GOFLAGS=-mod=mod

folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
cat > main.go <<'GO'
package main

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func main() {
	stored := metav1.ObjectMeta{
		Name:            "pod-gpu-x7k2p",
		GenerateName:    "pod-gpu-",
		Labels:          map[string]string{"a": "b"},
		Annotations:     map[string]string{"a": "b"},
		Finalizers:      []string{"example.com/f"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "pod"}},
	}
	sent := metav1.ObjectMeta{Name: stored.Name}
	metav1.ResetObjectMetaForStatus(&sent, &stored)
	word := map[bool]string{true: "kept", false: "removed"}
	fmt.Printf("labels %s, annotations %s, owners %s, finalizers %s, generateName %s\n",
		word[sent.Labels != nil], word[sent.Annotations != nil], word[sent.OwnerReferences != nil],
		word[sent.Finalizers != nil], word[sent.GenerateName != ""])
}
GO
go mod init finding >/dev/null 2>&1
go mod edit -require k8s.io/apimachinery@v0.37.2
go mod tidy >/dev/null 2>&1
seen=$(go run .)
echo "v0.37.2: $seen"
[ "$seen" = "labels kept, annotations kept, owners kept, finalizers kept, generateName removed" ]
