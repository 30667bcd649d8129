#!/usr/bin/env bash
# Prints a duration such as 90, 90s, 10m or 2h as whole seconds.
set -euo pipefail
case $1 in
  *[!0-9smh]*|'') echo "not a duration: $1" >&2; exit 2 ;;
  *h) echo $(( ${1%h} * 3600 )) ;;
  *m) echo $(( ${1%m} * 60 )) ;;
  *) echo "${1%s}" ;;
esac
