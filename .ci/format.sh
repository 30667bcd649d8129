#!/usr/bin/env bash
# Fails and names the files that gofumpt would change.
set -euo pipefail
changed=$(go tool gofumpt -l .)
if [[ -n $changed ]]; then
  echo "these files are not formatted (make fmt):" >&2
  echo "$changed" >&2
  exit 1
fi
