#!/usr/bin/env bash
# Builds the files that a release publishes: build.sh OUT. OUT receives the sdist, the wheel, the SBOM, the archive and the
# manifest for krew, and OUT/environment a virtual environment with the wheel and its locked dependencies, which the SBOM describes.
#
# PYTHON must have hatchling and pip (make venv), RELEASE_PYTHON cyclonedx-bom (requirements/release.txt).
# The same commit gives the same files: all times are the time of the commit.
set -euo pipefail
umask 022
mkdir -p "${1:?usage: build.sh OUT}"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-.venv/bin/python}
environment=$out/environment
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git show --no-patch --format=%ct HEAD 2>/dev/null || echo 315532800)}
export SOURCE_DATE_EPOCH PYTHONPATH=

rm -rf "$environment"
"$python" -m hatchling build -t sdist -t wheel -d "$out"
version=$("$python" -m hatchling version)
"$python" -m venv --without-pip "$environment"
pip=("$python" -m pip --python "$environment/bin/python" --quiet --disable-pip-version-check --no-input)
"${pip[@]}" install --only-binary :all: --require-hashes -r requirements/runtime.txt
"${pip[@]}" install --no-deps --no-index "$out/kubestow-$version-py3-none-any.whl"
# The version is dynamic in pyproject.toml; the generator wants it written out.
sed "s/^dynamic = .*/version = \"$version\"/" pyproject.toml >"$environment/pyproject.toml"
"${RELEASE_PYTHON:-.venv-release/bin/python}" -m cyclonedx_py environment --pyproject "$environment/pyproject.toml" \
  --mc-type application --output-reproducible --output-file "$out/kubestow-$version.cdx.json" "$environment/bin/python"
deploy/krew/build.sh "$out"
