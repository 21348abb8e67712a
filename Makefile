# Entry points for users and developers. `make demo` and `make test` need only Rust, and root or
# sudo to install missing packages.

LAB := target/release/sidelane-lab

.PHONY: demo lab test test-noise test-faults test-clients test-otlp test-kubernetes test-slurm test-java test-smt test-kernels test-deb build dist \
	install deb tarball java check loom fuzz mutants clean deps packaging-tool

# The main job on real input. Needs root: it loads a kernel program and holds lanes. At first only the verbs that lend
# lanes are built, which takes half as long. A build of all verbs stays one.
demo:
	@scripts/deps.sh demo
	cargo build --release $$(target/release/sidelane help trace >/dev/null 2>&1 || echo --no-default-features) \
		-p sidelane -p sidelane-gate -p sidelane-lab
	@if [ "$$(id -u)" -eq 0 ]; then exec $(LAB) demo --out out/demo $(ARGS); \
	 else exec sudo $(LAB) demo --out out/demo --cache "$$HOME/.cache/sidelane" $(ARGS); fi

# The product alone.
build: deps
	cargo build --release

# The laboratory with its benches, and the product that it measures.
lab:
	@scripts/deps.sh demo
	cargo build --release -p sidelane -p sidelane-gate -p sidelane-lab

# The product for packages: slower to build, and half the size. Identical functions are merged by the linker.
dist: deps
	RUSTFLAGS="-Clink-arg=-Wl,--icf=all" cargo build --profile dist

# What a package has, below DESTDIR.
DIST := $(or $(CARGO_TARGET_DIR),target)/dist
PACKAGES := out/packages
VERSION ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
PREFIX ?= /usr/local
install: dist packaging-tool
	packaging/install.sh product $(DIST) "$(DESTDIR)" $(PREFIX)

# Packages of the product and of the laboratory, for Debian 12 and later; the jar is in it after `make java`.
deb: dist packaging-tool
	@scripts/deps.sh lab
	RUSTFLAGS="-Clink-arg=-Wl,--icf=all" cargo build --profile dist -p sidelane-lab -p sidelane-packaging --features sidelane-packaging/lab
	packaging/package.sh deb $(DIST) $(PACKAGES) $(VERSION)

# The product as an archive to unpack at the root of another distribution: it has usr and etc.
tarball: dist packaging-tool
	packaging/package.sh tarball $(DIST) $(PACKAGES) $(VERSION)

packaging-tool:
	RUSTFLAGS="-Clink-arg=-Wl,--icf=all" cargo build --profile dist -p sidelane-packaging

# Installs, upgrades, removes and purges the package in a bare Debian 12, which debootstrap makes. Needs root.
test-deb: deb
	packaging/test-deb.sh $(DIST) $(PACKAGES) $(VERSION)

# Unit, property, model-checking, command-line, Java and (as root) privileged tests. All run even if
# one fails; the last line counts those that passed, failed and were skipped.
test:
	@scripts/deps.sh test
	cargo build --workspace
	@scripts/test.sh

# `make test` three times on a machine that is made noisy, with late summonses: one line for each
# round, and the total.
test-noise:
	@scripts/deps.sh test
	cargo build --workspace
	@scripts/test-noise.sh $(ARGS)

# Several hundred faults over all verbs: kills, halts, full disks, nonsense. After each one the service and the machine
# must be as before. Needs root; `make test-faults ARGS='--seed 2 --minutes 5'`.
test-faults:
	@scripts/deps.sh test
	cargo build --workspace
	@scripts/test-faults.sh $(ARGS)

# Real client libraries of Python, Node, Go and Java, curl and wrk through `sidelane proxy`. Downloads the libraries once.
test-clients:
	@scripts/deps.sh clients
	cargo build -p sidelane
	@scripts/test-clients.sh $(ARGS)

# Slow requests as traces in a real OpenTelemetry collector. Builds the collector once; needs root.
test-otlp:
	@scripts/deps.sh otlp
	cargo build -p sidelane
	@scripts/test-otlp.sh

# Lanes as a resource of Kubernetes, on a real control plane and node on loopback. Builds Kubernetes once.
test-kubernetes:
	@scripts/deps.sh kubernetes
	cargo build -p sidelane -p sidelane-kube
	@scripts/test-kubernetes.sh $(ARGS); code=$$?; [ $$code -eq 77 ] || exit $$code

# Lanes as a node of Slurm, with a real controller, node and agent on loopback. Needs root.
test-slurm:
	cargo build -p sidelane -p sidelane-slurm
	@scripts/test-slurm.sh $(ARGS); code=$$?; [ $$code -eq 77 ] || exit $$code

# The JVM agent: checks in Java programs (Elfen §3.3). Its tests are skipped without a JDK or Maven.
test-java:
	@if command -v mvn >/dev/null && command -v javac >/dev/null; then $(MAKE) --no-print-directory -C runtime/java test; \
	 else echo 'skipped: the tests of runtime/java need a JDK (javac) and Maven (mvn)'; fi

java:
	$(MAKE) --no-print-directory -C runtime/java

# The tests on an emulated machine with SMT: two cores with two lanes each. Skipped, with the
# reason, without QEMU or the guest's kernel.
test-smt:
	@scripts/deps.sh lab
	cargo build --release --workspace
	@nice -n 19 scripts/smt-guest.sh $(ARGS); code=$$?; [ $$code -eq 77 ] || exit $$code

# The same tests with each kernel that can be had, of Debian's and our own; docs/reference/kernels.md gets the table.
test-kernels:
	@scripts/deps.sh lab
	cargo build --release --workspace
	@nice -n 19 scripts/test-kernels.sh $(ARGS); code=$$?; [ $$code -eq 77 ] || exit $$code

# Model checking of the lock-free protocols.
loom:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p sidelane-formats --release --test loom

# Ten million mutated inputs for each parser of foreign bytes; `make fuzz ARGS='--seconds 60'` as many as that takes.
fuzz:
	@scripts/fuzz.sh $(ARGS)

# Breaks the pure code in 100 places of each crate, one at a time: a test has to notice. `ARGS='--file PATH'`: one file.
mutants:
	@scripts/mutants.sh $(ARGS)

# Checks that a change has to pass besides the tests.
check:
	@scripts/deps.sh lab
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --no-default-features -p sidelane -p sidelane-lab -- -D warnings

deps:
	@scripts/deps.sh build

clean:
	cargo clean
	rm -rf out
