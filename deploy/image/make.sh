#!/usr/bin/env bash
# Builds the image: make.sh NAME:TAG. The tag is the version it says it is; the revision is git's, if this is a clone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

image=${1:?usage: make.sh NAME:TAG}
engine=$(deploy/image/engine.sh)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || revision=$revision-dirty
# podman makes OCI images, which have no HEALTHCHECK, unless --format=docker is given.
"$engine" build $([ "$engine" != podman ] || echo --format=docker) --tag "$image" \
  --build-arg "VERSION=${image##*:}" --build-arg "REVISION=$revision" .
