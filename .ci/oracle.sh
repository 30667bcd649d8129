#!/usr/bin/env bash
# Asks Apache Kafka what the scripts of package group ask, and compares the answers. PROGRAM starts and stops it, called as
#
#   PROGRAM start DIR PORT 1 KEY=VALUE...   one node on 127.0.0.1:PORT with these settings; returns when it answers
#   PROGRAM stop DIR
#
# It is started three times: with an initial rebalance delay of 3 s and of none, and with a limit of members. ORACLE_PORT is its port, 25092
# unless set. With ORACLE=HOST:PORT nothing is started, and that one is asked what needs no more than the default settings.
set -euo pipefail
cd "$(dirname "$0")/.."
test=$(mktemp)
dir=$(mktemp -d)
program=${1:-} running=''
finish() {
  code=$?
  [[ -z $running ]] || "$program" stop "$running" kill > /dev/null 2>&1 || true
  rm -rf "$dir" "$test"
  exit "$code"
}
trap finish EXIT
CGO_ENABLED=0 go test -c -o "$test" ./group

ask() { # regexp of the tests, settings
  (cd group && KEEPLOG_ORACLE=$address KEEPLOG_ORACLE_CONFIG=${2:-} timeout 600 "$test" -test.v -test.run "$1" > "$dir/said") || {
    cat "$dir/said"
    exit 1
  }
  grep -E '^ *--- ' "$dir/said"
}

if [[ -n ${ORACLE:-} ]]; then
  address=$ORACLE
  ask '^TestOracle$'
  exit
fi
[[ -n $program ]] || { sed -n '2,9p' "$0" >&2; exit 2; }
address=127.0.0.1:${ORACLE_PORT:-25092}
with() { # name, regexp, settings of the scripts, settings of Kafka
  echo "== Apache Kafka with ${*:4}"
  running=$dir/$1
  "$program" start "$running" "${address#*:}" 1 "${@:4}" > /dev/null
  ask "$2" "$3"
  "$program" stop "$running" > /dev/null
  running=''
}
with delay '^TestOracle$' '' group.initial.rebalance.delay.ms=3000
with size '^TestOracle$' group.max.size=2 group.initial.rebalance.delay.ms=3000 group.max.size=2
with none '^TestConsumerOracle$' '' group.initial.rebalance.delay.ms=0
