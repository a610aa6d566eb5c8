#!/usr/bin/env bash
# Install the programs that some tests run and that are not built: a container engine for the tests of the image, and npm
# for those of the page. Only root on Debian or Ubuntu installs them; for other users each test that needs one names it.
set -euo pipefail

packages=()
type podman runc mmdebstrap >/dev/null 2>&1 || packages+=(podman runc mmdebstrap debian-archive-keyring)
type npm >/dev/null 2>&1 || packages+=(npm)
[ ${#packages[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! type apt-get >/dev/null 2>&1; then
  echo "not installed: ${packages[*]}; only root on Debian or Ubuntu installs them here, and tests that need them are skipped" >&2
  exit 0
fi
apt-get -qq update || true # one source that does not answer is no reason to stop
DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "${packages[@]}"
