#!/usr/bin/env bash
# Installs what can be installed of the clients that are not Go modules, says what is missing, and runs `make interop`. What is there must
# pass; what is missing is left out by its test, which says so.
set -euo pipefail
cd "$(dirname "$0")/.."
sudo=''
[[ $(id -u) == 0 ]] || sudo='sudo -n'
PATH=$PATH:/usr/sbin

# Debian's packages, one by one: an archive that lacks one does not cost the others.
packages=(kcat python3-kafka python3-confluent-kafka rsyslog rsyslog-kafka)
command -v npm > /dev/null || packages+=(nodejs npm)
command -v javac > /dev/null || packages+=(default-jdk-headless)
command -v mvn > /dev/null || packages+=(maven)
missing=()
for p in "${packages[@]}"; do
  dpkg -s "$p" > /dev/null 2>&1 || missing+=("$p")
done
if ((${#missing[@]})) && command -v apt-get > /dev/null && { [[ -z $sudo ]] || $sudo true 2> /dev/null; }; then
  timeout 120 $sudo apt-get update -q > /dev/null 2>&1 || echo "apt-get update failed"
  for p in "${missing[@]}"; do
    # Only the download has a time limit: what is being unpacked is not interrupted.
    timeout 60 $sudo apt-get install -q -y --no-install-recommends --download-only "$p" > /dev/null 2>&1 &&
      DEBIAN_FRONTEND=noninteractive $sudo apt-get install -q -y --no-install-recommends --no-download "$p" > /dev/null 2>&1 ||
      echo "not installed: $p"
  done
fi

required=()
have() { # name command...: the client is there, so its tests must pass
  local name=$1
  shift
  if "$@" > /dev/null 2>&1; then required+=("$name"); else echo "left out: $name"; fi
}
have kcat command -v kcat
have python3-kafka /usr/bin/python3 -c 'import kafka'
have python3-confluent-kafka /usr/bin/python3 -c 'import confluent_kafka'
have rsyslog-kafka bash -c 'command -v rsyslogd && ls /usr/lib/*/rsyslog/omkafka.so'
have kafkajs timeout 90 npm ci --silent --no-audit --no-fund --prefix test/interop/scripts
have java timeout 150 mvn -q -B -f test/interop/java/pom.xml dependency:resolve
have librdkafka bash -c 'command -v gcc && [[ $(CGO_ENABLED=1 go env CGO_ENABLED) == 1 ]]'
[[ " ${required[*]} " == *' librdkafka '* ]] && export CGO_ENABLED=1

INTEROP_REQUIRE=$(IFS=,; echo "${required[*]}")
export INTEROP_REQUIRE
echo "required: $INTEROP_REQUIRE"
make interop
KEEPLOG_BINARY=$PWD/bin/keeplog bash test/interop/franz_suite.sh -r 2000 -t 2m
