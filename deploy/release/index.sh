#!/usr/bin/env bash
# Joins the pushed images of several processors under one tag: index.sh REPOSITORY VERSION ARCHITECTURE...
# REPOSITORY:VERSION-ARCHITECTURE must exist for each. Prints digest=sha256:… of REPOSITORY:VERSION.
set -euo pipefail
repository=${1:?usage: index.sh REPOSITORY VERSION ARCHITECTURE...}
version=${2:?usage: index.sh REPOSITORY VERSION ARCHITECTURE...}
shift 2

oras manifest index create "$repository:$version" "${@/#/$version-}" >&2
echo "digest=$(oras resolve "$repository:$version")"
