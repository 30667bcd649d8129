#!/usr/bin/env bash
# Installs what can be installed of the clients that are not Go modules, says what is missing, and runs `make interop`. A client that is
# missing is left out by its test, which says so.
set -euo pipefail
sudo=''
[[ $(id -u) == 0 ]] || sudo=sudo
packages=(kcat python3-kafka python3-confluent-kafka rsyslog rsyslog-kafka)
missing=()
for p in "${packages[@]}"; do
  dpkg -s "$p" > /dev/null 2>&1 || missing+=("$p")
done
if ((${#missing[@]})) && command -v apt-get > /dev/null && { [[ -z $sudo ]] || sudo -n true 2> /dev/null; }; then
  timeout 180 $sudo apt-get update -q > /dev/null 2>&1 || echo "apt-get update failed"
  for p in "${missing[@]}"; do
    DEBIAN_FRONTEND=noninteractive timeout 180 $sudo apt-get install -q -y --no-install-recommends "$p" > /dev/null 2>&1 || echo "not installed: $p"
  done
fi
for tool in kcat rsyslogd npm mvn java; do
  command -v "$tool" > /dev/null || PATH=$PATH:/usr/sbin command -v "$tool" > /dev/null || echo "missing: $tool"
done
make interop
