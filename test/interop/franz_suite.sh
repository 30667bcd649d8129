#!/usr/bin/env bash
# Runs a test of franz-go's own suite against a cluster of this machine, which it starts and takes away. The suite is built from the Go module, in
# a temporary directory. KEEPLOG_BINARY names the server.
#
#   franz_suite.sh [-n NODES] [-r RECORDS] [-c COUNT] [-t TIMEOUT] [-run REGEXP] [-want N]
#
# N is how many tests must pass each time, subtests included: the suite leaves out what the server does not say that it can. KGO_SEEDS, when set,
# names brokers that run already, such as Apache Kafka, and nothing is started.
set -euo pipefail
cd "$(dirname "$0")"
nodes=1 records=20000 count=1 timeout=9m run='^TestGroupETL$' want=7
while (($#)); do
  case $1 in
    -n) nodes=$2 ;;
    -r) records=$2 ;;
    -c) count=$2 ;;
    -t) timeout=$2 ;;
    -run) run=$2 ;;
    -want) want=$2 ;;
    *)
      sed -n '2,8p' "$0" >&2
      exit 2
      ;;
  esac
  shift 2
done

dir=$(mktemp -d)
server=()
finish() {
  code=$?
  if ((${#server[@]})); then "${server[@]}" rm --yes --quiet || true; fi
  chmod -R u+w "$dir" && rm -rf "$dir"
  exit "$code"
}
trap finish EXIT

module=$(go list -m -f '{{.Dir}}' github.com/twmb/franz-go)
cp -r "$module" "$dir/franz-go"
chmod -R u+w "$dir/franz-go"
(cd "$dir/franz-go/pkg/kgo" && GOWORK=off CGO_ENABLED=0 go test -c -o "$dir/kgo.test" .)

if [[ -z ${KGO_SEEDS:-} ]]; then
  bin=${KEEPLOG_BINARY:?KEEPLOG_BINARY does not name the server}
  server=("$bin" local --dir "$dir/cluster")
  "${server[@]}" up --detach --any-port --quiet -n "$nodes" \
    --set group.consumer.heartbeat.interval.ms=500 --set group.consumer.min.heartbeat.interval.ms=100
  KGO_SEEDS=$("${server[@]}" env | sed -n 's/.*KEEPLOG_BROKERS=//p' | tr -d "'\"")
fi
export KGO_SEEDS KGO_TEST_RF=$((nodes < 3 ? 1 : 3)) KGO_TEST_RECORDS=$records KGO_LOG_LEVEL=${KGO_LOG_LEVEL:-none}

for ((i = 1; i <= count; i++)); do
  began=$SECONDS code=0
  (cd "$dir/franz-go/pkg/kgo" && "$dir/kgo.test" -test.run "$run" -test.v -test.count=1 -test.timeout "$timeout") > "$dir/said" 2>&1 || code=$?
  passed=$(grep -c '^ *--- PASS' "$dir/said" || true)
  failed=$(grep -c '^ *--- FAIL' "$dir/said" || true)
  printf '%s, %d nodes, %d records: %d passed, %d failed, %ds\n' "$run" "$nodes" "$records" "$passed" "$failed" $((SECONDS - began))
  if ((code != 0 || failed > 0 || passed < want)); then
    tail -n 80 "$dir/said"
    echo "franz-go's suite: exit code $code, $passed passed of at least $want" >&2
    exit 1
  fi
done
