#!/usr/bin/env bash
# Prints version=1.2.3 for the tag v1.2.3: version.sh TAG. Fails if the package or the chart has another version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tag=${1:?usage: version.sh TAG}
version=${tag#v}

package=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' scheduler/__init__.py)
chart=$(sed -n 's/^version: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' deploy/helm/Chart.yaml)
application=$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' deploy/helm/Chart.yaml)
if [ "$tag" != "v$version" ] || [ "$package $chart $application" != "$version $version $version" ]; then
  echo "The tag $tag differs from a version: package $package, chart $chart, appVersion of the chart $application" >&2
  exit 1
fi
echo "version=$version"
