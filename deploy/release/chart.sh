#!/usr/bin/env bash
# Packages the chart with the address of its image and pushes it: chart.sh OUT IMAGE@DIGEST REGISTRY/PATH.
# OUT receives the package. Prints digest=sha256:… of REGISTRY/PATH/kubestow.
set -euo pipefail
usage='usage: chart.sh OUT IMAGE@DIGEST REGISTRY/PATH'
out=$(cd "${1:?$usage}" && pwd)
image=${2:?$usage}
charts=${3:?$usage}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -R deploy/helm "$copy/kubestow"

sed -i -e "s|^  repository: \"\"\$|  repository: ${image%@*}|" -e "s|^  digest: \"\"\$|  digest: ${image#*@}|" "$copy/kubestow/values.yaml"
sed -i -e 's/ No release has been published yet\.$//' -e "s|oci://ghcr.io/kubestow/charts/|oci://$charts/|" "$copy/kubestow/README.md"
# A chart that names another image, or none, is not pushed.
helm template "$copy/kubestow" | grep -qF "image: \"$image\"" || { echo "chart.sh: the packaged chart does not name $image" >&2; exit 1; }
helm package "$copy/kubestow" --destination "$out" >&2
version=$(sed -n 's/^version: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' deploy/helm/Chart.yaml)
helm push "$out/kubestow-$version.tgz" "oci://$charts" >&2
echo "digest=$(oras resolve "$charts/kubestow:$version")"
