#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time (such as 5s). What a target finds is kept in its package's testdata/fuzz.
set -euo pipefail
export CGO_ENABLED=0
each=${1:-10s}
count=0
# One package at a time, so that the names come with the package they belong to.
while read -r pkg; do
  targets=$(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true)
  for target in $targets; do
    echo "fuzz $pkg $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$each" -fuzzminimizetime 5s "$pkg"
    count=$((count + 1))
  done
done < <(grep -rl --include='*_test.go' '^func Fuzz' . | grep -v /node_modules/ | xargs -r -n1 dirname | sort -u)
echo "$count fuzz targets, $each each"
