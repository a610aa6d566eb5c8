#!/usr/bin/env bash
# Attaches SBOM and provenance to pushed artefacts as OCI referrers: attach.sh OUT VERSION ARTEFACT@DIGEST...
# They are not signed; release.yml also signs an attestation of each.
set -euo pipefail
usage='usage: attach.sh OUT VERSION ARTEFACT@DIGEST...'
cd "${1:?$usage}"
version=${2:?$usage}
shift 2

for artefact in "${@:?$usage}"; do
  oras attach --no-tty --artifact-type application/vnd.cyclonedx+json "$artefact" \
    "kubestow-$version.cdx.json:application/vnd.cyclonedx+json"
  oras attach --no-tty --artifact-type application/vnd.in-toto+json "$artefact" \
    "kubestow-$version.intoto.json:application/vnd.in-toto+json"
done
