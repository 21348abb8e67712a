# Entry points for users and developers. `make demo` and `make test` need only Rust, and root or
# sudo to install missing packages.

LAB := target/release/sidelane-lab

.PHONY: demo test test-noise test-clients test-java test-smt test-kernels build dist java check loom fuzz mutants clean deps

# The main job on real input. Needs root: it loads a kernel program and holds lanes.
demo:
	@scripts/deps.sh demo
	cargo build --release -p sidelane -p sidelane-gate -p sidelane-lab
	@if [ "$$(id -u)" -eq 0 ]; then exec $(LAB) demo --out out/demo $(ARGS); \
	 else exec sudo $(LAB) demo --out out/demo --cache "$$HOME/.cache/sidelane" $(ARGS); fi

# The product alone; `make demo` builds the laboratory, too.
build: deps
	cargo build --release

# The product for packages: slower to build, and half the size. Identical functions are merged by the linker.
dist: deps
	RUSTFLAGS="-Clink-arg=-Wl,--icf=all" cargo build --profile dist

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

# Real client libraries of Python, Node, Go and Java, curl and wrk through `sidelane proxy`. Downloads the libraries once.
test-clients:
	@scripts/deps.sh clients
	cargo build -p sidelane
	@scripts/test-clients.sh $(ARGS)

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

deps:
	@scripts/deps.sh build

clean:
	cargo clean
	rm -rf out
