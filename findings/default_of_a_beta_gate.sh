#!/usr/bin/env bash
# A feature gate that is registered as "1.37: beta, on" is off in a default kube-scheduler 1.37.2.
#
# k8s.io/kubernetes v1.37.2 registers DRAFractionalCapacityRange twice for 1.37: off, and on with
# MinCompatibilityVersion 1.37. The flag --min-compatibility-version defaults to the minor version before the binary's, so
# the second line has no effect until an administrator raises the flag. A table of gates made from the last line is wrong.
#
# Installs: Go modules k8s.io/kubernetes v1.37.2 and what it requires. Needs Go. Output that was seen:
#   no flag: false
#   --min-compatibility-version=1.37: true
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat > go.mod <<'MOD'
module finding

go 1.26.0
MOD
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

func main() {
	flags := pflag.NewFlagSet("kube-scheduler", pflag.ExitOnError)
	registry := compatibility.DefaultComponentGlobalsRegistry
	registry.AddFlags(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		panic(err)
	}
	if err := registry.Set(); err != nil {
		panic(err)
	}
	fmt.Println(utilfeature.DefaultFeatureGate.Enabled(features.DRAFractionalCapacityRange))
}
GO
version=v0.37.2
for name in api apiextensions-apiserver apimachinery apiserver client-go cloud-provider cluster-bootstrap component-base component-helpers \
  controller-manager cri-api cri-client csi-translation-lib dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator \
  kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission streaming; do
  go mod edit -replace "k8s.io/$name=k8s.io/$name@$version"
done
go mod edit -require k8s.io/kubernetes@v1.37.2
go mod tidy -e >/dev/null 2>&1
go build -o finding .

default=$(./finding)
raised=$(./finding --min-compatibility-version=1.37)
echo "no flag: $default"
echo "--min-compatibility-version=1.37: $raised"
[ "$default $raised" = "false true" ]
