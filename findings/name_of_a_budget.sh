#!/usr/bin/env bash
# kube-apiserver stores a PodDisruptionBudget whose name has a space: its validation has no rule for the names of this kind.
#
# Names of most kinds must be DNS subdomains. The strategy of PodDisruptionBudget in k8s.io/kubernetes v1.37.2 validates the
# spec only, so just the rules for parts of a path apply: no slash, no percent sign, not "." or "..". A client that makes a
# label, a file or a metric of the name must be ready for spaces and capital letters.
#
# Installs: Go modules k8s.io/kubernetes v1.37.2 and what it requires. Needs Go. Output that was seen:
#   "not app": accepted
#   "Not/App": refused: PodDisruptionBudget.policy "Not/App" is invalid: metadata.name: Invalid value: "Not/App": may not contain '/'
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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
)

func main() {
	for _, name := range []string{"not app", "Not/App"} {
		budget := &policy.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
		context := request.WithRequestInfo(request.WithNamespace(request.NewContext(), "default"),
			&request.RequestInfo{APIGroup: "policy", APIVersion: "v1", Resource: "poddisruptionbudgets"})
		rest.FillObjectMetaSystemFields(budget)
		err := rest.BeforeCreate(poddisruptionbudget.Strategy, context, budget)
		answer := "accepted"
		if err != nil {
			answer = "refused: " + err.Error()
		}
		fmt.Printf("%q: %s\n", name, answer)
	}
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

seen=$(./finding)
echo "$seen"
[ "${seen%%$'\n'*}" = '"not app": accepted' ]
[[ $seen == *'"Not/App": refused: '*"may not contain '/'" ]]
