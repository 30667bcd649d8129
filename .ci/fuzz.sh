#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time (such as 5s). What a target finds is kept in its package's testdata/fuzz.
set -euo pipefail
export CGO_ENABLED=0
each=${1:-10s}
count=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# The tool itself fails with "context deadline exceeded" when its time ends at the wrong moment, as on a busy machine: that is no finding,
# and is tried again. What it finds it says otherwise, and fails.
fuzz() { # package target
  local try
  for try in 1 2 3; do
    if go test -run '^$' -fuzz "^$2\$" -fuzztime "$each" -fuzzminimizetime 5s "$1" 2>&1 | tee "$out"; then
      return 0
    fi
    grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input written' "$out" || return 1
    echo "once more: $1 $2"
  done
  return 1
}

# One package at a time, so that the names come with the package they belong to.
while read -r pkg; do
  targets=$(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true)
  for target in $targets; do
    echo "fuzz $pkg $target"
    fuzz "$pkg" "$target"
    count=$((count + 1))
  done
done < <(grep -rl --include='*_test.go' '^func Fuzz' . | grep -v /node_modules/ | xargs -r -n1 dirname | sort -u)
echo "$count fuzz targets, $each each"
