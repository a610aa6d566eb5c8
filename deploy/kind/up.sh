#!/usr/bin/env bash
# A kind cluster with Kubestow in it, and pods for it: up.sh NAME:TAG. See docs/kind.md.
# May be run again: the cluster is kept, a new image or chart is rolled out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

image=${1:?usage: up.sh NAME:TAG}
cluster=${KIND_CLUSTER:-kubestow}
for tool in kind kubectl helm; do
  command -v "$tool" >/dev/null || { echo "$tool is needed and was not found: see docs/kind.md" >&2; exit 1; }
done
engine=$(deploy/image/engine.sh)
[ "$engine" != podman ] || export KIND_EXPERIMENTAL_PROVIDER=podman
echo "These steps were never run on a container engine, only with stand-ins for kind, Helm and kubectl: docs/kind.md" >&2
on=(--context "kind-$cluster")

kind get clusters 2>/dev/null | grep -qx "$cluster" ||
  kind create cluster --name "$cluster" --config deploy/kind/cluster.yaml --wait 3m

archive=$(mktemp)
trap 'rm -f "$archive"' EXIT
"$engine" save "$image" >"$archive"
kind load image-archive "$archive" --name "$cluster"

# The annotation has the pods replaced when an image of the same name has other contents.
helm upgrade --install kubestow deploy/helm --kube-context "kind-$cluster" --namespace kubestow --create-namespace \
  --set "image.repository=${image%:*}" --set-string "image.tag=${image##*:}" --set image.pullPolicy=Never \
  --set-string "podAnnotations.image=$("$engine" image inspect --format '{{.Id}}' "$image")" --wait --timeout 5m

kubectl "${on[@]}" apply -f examples/kind.yaml
kubectl "${on[@]}" -n kubestow-demo rollout status deployment/web statefulset/store --timeout 5m
kubectl "${on[@]}" -n kubestow-demo get pods,pvc -o wide
echo "Why one of them waits: kubectl ${on[*]} -n kubestow-demo describe pod too-large"
echo "What would help: .venv/bin/kubestow explain kubestow-demo/too-large --context kind-$cluster --scheduler-namespace kubestow"
