#!/usr/bin/env bash
# Builds the image: make.sh NAME:TAG. VERSION, by default the tag, becomes the version label; revision and time come from the git commit.
# PLATFORM=linux/arm64 builds for another processor, PYTHON_IMAGE=... on another base image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

image=${1:?usage: make.sh NAME:TAG}
engine=$(deploy/image/engine.sh)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
created=$(TZ=UTC git show --no-patch --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd HEAD 2>/dev/null || echo 1970-01-01T00:00:00Z)
[ -z "$(git status --porcelain 2>/dev/null)" ] || revision=$revision-dirty
arguments=(--tag "$image" --build-arg "VERSION=${VERSION:-${image##*:}}" --build-arg "REVISION=$revision" --build-arg "CREATED=$created")
# Attestations would make an index of the image, which deploy/release/index.sh cannot join. release.yml attests the result.
export BUILDX_NO_DEFAULT_ATTESTATIONS=1
# Without this flag podman makes OCI images, which have no HEALTHCHECK.
[ "$engine" != podman ] || arguments+=(--format=docker)
[ -z "${PLATFORM:-}" ] || arguments+=(--platform "$PLATFORM")
[ -z "${PYTHON_IMAGE:-}" ] || arguments+=(--build-arg "PYTHON_IMAGE=$PYTHON_IMAGE")
"$engine" build "${arguments[@]}" .
