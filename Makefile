# Needs Go and make. `make race` and `make interop` need more: a C compiler; npm, Maven, Python or Debian packages.

GO      ?= go
ARGS    ?=
# How long, for soak (COUNT rounds, or TIME such as 10m), fuzz (TIME each target) and harness (SECONDS_EACH each harness).
COUNT   ?=
TIME    ?=
SECONDS_EACH ?= 20

# What runs for long under `make soak` and for seconds in CI: storage harnesses in one process, the kill loop on the real binary.
HARNESSES = ./internal/logtest ./test/killloop

.PHONY: run build test race lint fmt harness seeded soak sim bubble torture powerfail interop interop-long oracle bench fuzz clean

run: build
	bin/keeplog serve $(ARGS)

build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -o bin/keeplog ./cmd/keeplog

test:
	CGO_ENABLED=0 $(GO) test -timeout 240s ./...

race:
	CGO_ENABLED=1 $(GO) test -race -timeout 15m ./...

lint:
	@bash .ci/format.sh
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	CGO_ENABLED=0 $(GO) test -count=1 ./internal/lint

fmt:
	$(GO) tool gofumpt -w .

harness:
	CGO_ENABLED=0 KEEPLOG_HARNESS_SECONDS=$(SECONDS_EACH) $(GO) test -count=1 -v -timeout 20m $(HARNESSES)

# Every planted bug must be found by a harness.
seeded:
	CGO_ENABLED=0 $(GO) test -count=1 -tags seeded -timeout 10m ./log ./internal/logtest ./controller ./replication/isr ./replication/quorum ./group -run 'Seeded|Planted'

soak:
	CGO_ENABLED=0 KEEPLOG_HARNESS_COUNT=$(COUNT) KEEPLOG_HARNESS_SECONDS=$(if $(COUNT),,$(shell bash .ci/seconds.sh $(or $(TIME),10m))) \
		$(GO) test -count=1 -v -timeout 0 $(HARNESSES)

# A whole cluster on one thread: COUNT seeds (such as 200000), or as many as TIME allows.
sim:
	CGO_ENABLED=0 KEEPLOG_HARNESS_COUNT=$(COUNT) KEEPLOG_HARNESS_SECONDS=$(if $(COUNT),,$(shell bash .ci/seconds.sh $(or $(TIME),3m))) \
		$(GO) test -count=1 -v -timeout 0 -run 'TestSimulation$$' ./replication/isr

# The real packages in virtual time, TIME for each.
bubble:
	CGO_ENABLED=0 KEEPLOG_HARNESS_SECONDS=$(shell bash .ci/seconds.sh $(or $(TIME),1m)) \
		$(GO) test -count=1 -v -timeout 0 -run 'TestChaos$$|TestBubble$$' ./replication/isr ./replication/quorum

# Three real processes under faults for TIME; SEED and FAULTS choose them.
torture: build
	bin/keeplog local torture --duration $(or $(TIME),60s) $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))

POWER_FAULTS = power,power-all

# Three real processes whose disks forget what was not fsynced, through about ROUNDS power failures. POWERLOSS is a program that mounts such a
# disk, called as POWERLOSS LIVE MOUNT CONTROL strict|ext4; "crash OUT N" to the unix socket CONTROL writes to OUT what a failure leaves.
powerfail: build
	@test -n "$(POWERLOSS)" || { echo "make powerfail needs POWERLOSS=PROGRAM, a mount that forgets what was not fsynced: see the Makefile"; exit 2; }
	bin/keeplog local torture --powerloss "$(POWERLOSS)" --faults $(or $(FAULTS),$(POWER_FAULTS)) --duration $$(( $(or $(ROUNDS),20) * 5 ))s $(if $(SEED),--seed $(SEED))

interop: build
	cd test/interop && KEEPLOG_BINARY=$(CURDIR)/bin/keeplog $(GO) test -count=1 -timeout 20m ./...

# franz-go's own group tests at 20,000 records, classic and KIP-848, three runs each on one node and on three.
interop-long: build
	KEEPLOG_BINARY=$(CURDIR)/bin/keeplog bash test/interop/franz_suite.sh -n 1 -c 3
	KEEPLOG_BINARY=$(CURDIR)/bin/keeplog bash test/interop/franz_suite.sh -n 3 -c 3

# The scripts of groups, asked of Apache Kafka: KAFKA is a program that starts and stops it (see .ci/oracle.sh), or ORACLE=HOST:PORT one that runs.
oracle:
	@ORACLE=$(ORACLE) bash .ci/oracle.sh $(KAFKA)

bench:
	CGO_ENABLED=0 $(GO) test -run '^$$' -bench . -benchmem ./...

fuzz:
	@bash .ci/fuzz.sh $(or $(TIME),30s)

# Removes what was built; data directories stay.
clean:
	rm -rf bin
