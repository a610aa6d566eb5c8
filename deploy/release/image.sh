#!/usr/bin/env bash
# Runs a built image (deploy/image/make.sh) and pushes it: image.sh NAME:TAG.
# An image that cannot start or simulate is not pushed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
image=${1:?usage: image.sh NAME:TAG}
engine=$(deploy/image/engine.sh)

"$engine" run --rm --read-only "$image" version
"$engine" run --rm --read-only --volume "$PWD/examples:/examples:ro" "$image" simulate /examples/demo.yaml
"$engine" push "$image"
