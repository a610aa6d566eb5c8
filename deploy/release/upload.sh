#!/usr/bin/env bash
# Checks wheel and sdist and uploads them to a package index: upload.sh OUT URL. TWINE_USERNAME and TWINE_PASSWORD are the
# credentials. release.yml uploads to PyPI with an action that does the same with trusted publishing.
set -euo pipefail
usage='usage: upload.sh OUT URL'
out=${1:?$usage}
url=${2:?$usage}
twine=("${RELEASE_PYTHON:-.venv-release/bin/python}" -m twine)
files=("$out"/kubestow-*-py3-none-any.whl "$out"/kubestow-*.tar.gz)

"${twine[@]}" check --strict "${files[@]}"
"${twine[@]}" upload --non-interactive --disable-progress-bar --repository-url "$url" "${files[@]}"
