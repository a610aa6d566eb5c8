#!/usr/bin/env bash
# The step of action.yml: install the Kubestow of this commit, simulate, and add the report to the summary of the job.
# The exit code is that of `kubestow simulate`: 0 if all pods are placed as expected.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
environment=${RUNNER_TEMP:?}/kubestow
report=$environment/report.txt

if [ ! -x "$environment/bin/kubestow" ]; then
  python3 -m venv "$environment"
  pip=("$environment/bin/python" -m pip --quiet --disable-pip-version-check --no-input)
  "${pip[@]}" install --require-hashes -r "$root/requirements/runtime.txt"
  "${pip[@]}" install --no-deps "$root"
fi

lines() { # variables: their lines without spaces around them, and without empty lines
  printf '%s\n' "$@" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//; /^$/d'
}
mapfile -t flags < <(lines "${KUBESTOW_FLAGS:-}")
mapfile -t inputs < <(lines "${KUBESTOW_CLUSTER:?}" "${KUBESTOW_WORKLOAD:?}")

code=0
"$environment/bin/kubestow" simulate "${flags[@]}" "${inputs[@]}" 2>&1 | tee "$report" || code=$?
{
  echo '```'
  cat "$report"
  echo '```'
} >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
exit "$code"
