#!/usr/bin/env bash
# The race detector needs a C compiler: installs one where there is none.
set -euo pipefail
command -v gcc > /dev/null && exit 0
sudo=''
[[ $(id -u) == 0 ]] || sudo=sudo
$sudo apt-get update -q
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -q -y --no-install-recommends gcc libc6-dev
