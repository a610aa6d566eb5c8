#!/usr/bin/env bash
# Builds the archive and the manifest for krew: build.sh OUT. OUT receives kubectl-kubestow-VERSION.tar.gz and kubestow.yaml.
# DOWNLOADS is the address from which krew downloads the archive, by default that of the release.
# The same files give the same archive, bit for bit.
set -euo pipefail
umask 022
mkdir -p "${1:?usage: build.sh OUT}"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' scheduler/__init__.py)
archive=$out/kubectl-kubestow-$version.tar.gz

tar --create --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=ustar \
  -C deploy/krew kubectl-kubestow -C ../.. LICENSE | gzip -n -9 >"$archive"
sum=$(sha256sum "$archive" | cut -d' ' -f1)
downloads=${DOWNLOADS:-https://github.com/kubestow/kubestow/releases/download/v$version}
sed -e "s|@DOWNLOADS@|$downloads|" -e "s/@VERSION@/$version/g" -e "s/@SHA256@/$sum/" -e 1d deploy/krew/kubestow.yaml >"$out/kubestow.yaml"
