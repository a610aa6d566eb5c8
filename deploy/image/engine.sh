#!/usr/bin/env bash
# Prints the container engine that answers here: $ENGINE if it is set, else docker or podman.
set -euo pipefail

for engine in ${ENGINE:-docker podman}; do
  if "$engine" info >/dev/null 2>&1; then
    echo "$engine"
    exit
  fi
done
echo "No container engine answers (tried: ${ENGINE:-docker podman}). Install one, start its daemon, or name yours: ENGINE=..." >&2
exit 1
