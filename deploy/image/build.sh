#!/usr/bin/env bash
# Makes the layers of the image. The Dockerfile runs it, and so do the tests where no container engine is installed.
#
#   build.sh tools | interpreter | wheels | kubestow
#
# Works in the current directory: reads requirements/ and, for the last step, the source there, and leaves a directory
# per step, layers/<step>, that is laid over / of an empty image. Nothing but these is in it: the interpreter that runs
# this (PYTHON, default python3), the shared libraries it and the wheels are linked to, the locked wheels, Kubestow.
# No shell, no package manager, no pip. Bytecode is compiled and never looked at again, since nothing may be written.
set -euo pipefail
umask 022

python=${PYTHON:-python3}
layers=$PWD/layers
venv=/opt/kubestow
binary=$("$python" -c 'import os, sys; print(os.path.realpath(sys._base_executable))')
pip=(env PYTHONPATH= "$python" -m pip --quiet --disable-pip-version-check --no-input)
site=$venv/lib/$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages

# Neither tests nor type stubs nor sources of extensions are read at run time.
prune() { # directory
  find "$1" -type d \( -name test -o -name tests -o -name __pycache__ \) -prune -exec rm -rf {} +
  find "$1" -type f -regextype posix-extended -regex '.*/test_[^/]*|.*\.(pyi|pyx|pxd|c|h|a)' -delete
}

# Symbol tables are a tenth of the image; the dynamic symbols stay. A wheel with a directory NAME.libs was patched to
# find the libraries in it, and strip would break such a file (numpy: "ELF load command address/offset not page-aligned").
strip_libraries() { # site-packages
  local libs patched=()
  for libs in "$1"/*.libs; do
    patched+=(-not -path "$libs/*" -not -path "${libs%.libs}/*")
  done
  find "$1" -type f -name '*.so' "${patched[@]}" -exec strip --strip-unneeded {} +
}

# kubernetes_asyncio takes credentials from exec plugins and OIDC issuers here. Its packages import all its API models when they are
# imported (43 MB), and the daemon never uses a model. tests/deploy/test_image.py compares the names that its
# configuration module needs with those that stay.
without_models() { # site-packages
  local client=$1/kubernetes_asyncio/client package
  for package in client/api client/models dynamic leaderelection stream utils watch; do
    rm -r "$1/kubernetes_asyncio/$package"
  done
  mkdir "$client/models"
  : >"$client/models/__init__.py"
  printf 'from kubernetes_asyncio.client.%s import %s\n' \
    api_client ApiClient configuration Configuration >"$client/__init__.py"
  sed -i '/^import kubernetes_asyncio\./d; /^__all__/d' "$1/kubernetes_asyncio/__init__.py"
}

# The official base image has no strip.
tools() {
  command -v strip >/dev/null || {
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends binutils
  }
}

# Tracebacks name the files as they will be found in the image.
compile() { # layer
  "$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$1" -p / "$1"
}

copy_in() { # layer, absolute path: the file, in the same place, whatever links led there
  local to=$1$2
  [ -e "$to" ] || { mkdir -p "${to%/*}" && cp -L "$2" "$to"; }
}

interpreter() {
  local layer=$layers/interpreter stdlib
  stdlib=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
  copy_in "$layer" "$binary"
  # Without what needs a terminal, a display or a database, builds other things, or tests the interpreter.
  tar -C / -cf - \
    --exclude='*/site-packages' --exclude='*/dist-packages' --exclude='*/config-*' --exclude='*/ensurepip' \
    --exclude='*/idlelib' --exclude='*/lib2to3' --exclude='*/pydoc_data' --exclude='*/turtledemo' \
    --exclude='*/tkinter' --exclude='*/curses' --exclude='*/sqlite3' --exclude='*/dbm' \
    --exclude='*/lib-dynload/_tkinter*' --exclude='*/lib-dynload/_curses*' --exclude='*/lib-dynload/readline*' \
    --exclude='*/lib-dynload/_sqlite3*' --exclude='*/lib-dynload/*dbm*' --exclude='*/lib-dynload/nis*' \
    --exclude='*/lib-dynload/_crypt*' --exclude='*/lib-dynload/*test*' --exclude='*/lib-dynload/xx*' \
    "${stdlib#/}" | tar -C "$layer" -xf -
  prune "$layer"
  compile "$layer"

  mkdir -p "$layer$venv/bin"
  ln -s "$binary" "$layer$venv/bin/python"
  printf 'home = %s\ninclude-system-site-packages = false\n' "${binary%/*}" >"$layer$venv/pyvenv.cfg"

  mkdir -p "$layer/etc"
  printf 'root:x:0:0::/:/none\nkubestow:x:65532:65532::/:/none\n' >"$layer/etc/passwd"
  printf 'root:x:0:\nkubestow:x:65532:\n' >"$layer/etc/group"
  printf 'hosts: files dns\n' >"$layer/etc/nsswitch.conf"
  mkdir -m 1777 "$layer/tmp" # nothing of ours is written there; certificates of exec plugins are, by the library that reads them
  certificates "$layer"
}

# Authorities, for an API server with a public certificate: at the one place where OpenSSL looks unasked.
certificates() { # layer
  local to
  to=$1$("$python" -c 'import ssl; print(ssl.get_default_verify_paths().openssl_cafile)')
  mkdir -p "${to%/*}"
  cp -L /etc/ssl/certs/ca-certificates.crt "$to"
}

wheels() {
  local layer=$layers/wheels
  "${pip[@]}" install --no-compile --only-binary :all: --require-hashes -r requirements/runtime.txt --target "$layer$site"
  rm -rf "$layer$site/bin"
  prune "$layer"
  strip_libraries "$layer$site"
  without_models "$layer$site"
  compile "$layer"
  libraries
}

# Copies the shared libraries that interpreter and wheels are linked to into the layer of the interpreter, and names
# their Debian packages there for scanners of images.
libraries() {
  local layer=$layers/interpreter linked path
  linked=$(
    find "$layers" -type f \( -name '*.so' -o -name '*.so.*' \) -exec ldd {} + 2>/dev/null
    ldd "$binary"
  )
  if grep 'not found' <<<"$linked" >&2; then
    echo "build.sh: these libraries are missing here" >&2
    return 1
  fi
  awk '$2 == "=>" && $3 ~ "^/" { print $3 } $1 ~ "^/.*/ld-" { print $1 }' <<<"$linked" | xargs -n 1 realpath -s |
    sort -u | grep -v "^$layers/" | while read -r path; do
    copy_in "$layer" "$path"
    tell_package "$layer" "$path"
  done
  # For those that lie elsewhere than where the loader looks unasked. Only root may.
  printf '/usr/local/lib\n' >"$layer/etc/ld.so.conf"
  [ "$(id -u)" != 0 ] || ldconfig -r "$layer"
}

tell_package() { # layer, path
  local package
  command -v dpkg-query >/dev/null || return 0
  package=$(dpkg-query -S "$2" 2>/dev/null || dpkg-query -S "$(realpath "$2")" 2>/dev/null) || return 0
  package=${package%%:*}
  mkdir -p "$1/var/lib/dpkg/status.d"
  dpkg-query -s "$package" >"$1/var/lib/dpkg/status.d/$package"
  copy_in "$1" /etc/os-release
}

kubestow() {
  local layer=$layers/kubestow
  "${pip[@]}" install --only-binary :all: --require-hashes -r requirements/build.txt --target build-tools
  PYTHONPATH=build-tools "$python" -m pip --quiet --disable-pip-version-check install \
    --no-compile --no-deps --no-index --no-build-isolation --target "$layer$site" .
  rm -rf "$layer$site/bin"
  prune "$layer"
  compile "$layer"
  mkdir -p "$layer$venv/bin"
  {
    echo "#!$venv/bin/python -BPs"
    echo 'import sys'
    echo 'from scheduler.cli.main import main'
    echo 'sys.exit(main())'
  } >"$layer$venv/bin/kubestow"
  chmod +x "$layer$venv/bin/kubestow"
}

case ${1:-} in
  tools | interpreter | wheels | kubestow) "$1" ;;
  *) echo "usage: build.sh tools | interpreter | wheels | kubestow" >&2 && exit 2 ;;
esac
