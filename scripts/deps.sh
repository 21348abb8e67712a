#!/bin/sh
# Installs the Debian packages that a step needs and lists them. Usage: deps.sh STEP, one of those below.
# On other systems it only lists what is missing.
set -eu

build="clang libelf-dev zlib1g-dev pkg-config gcc libc6-dev make"
# What the laboratory is linked with.
lab="libsqlite3-dev"
demo="linux-doc-6.1 dict-gcide dict-foldoc zstd"
test="dict-gcide zstd xz-utils redis-server redis-tools memcached tini nginx-light bpftool util-linux libcap2-bin curl python3
	default-jdk-headless g++ musl-tools openssl nghttp2-server nghttp2-client python3-grpcio python3-websockets"
# Tests of the lab's key-value server and of containers; not every release of Debian has them.
test_if_there="librocksdb-dev libwiredtiger-dev runc"

case "${1:-}" in
build) wanted=$build if_there="" ;;
lab) wanted="$build $lab" if_there="" ;;
demo) wanted="$build $lab $demo" if_there="" ;;
test) wanted="$build $lab $test" if_there=$test_if_there ;;
clients) wanted="$build redis-server redis-tools python3-venv curl wrk" if_there="" ;;
kubernetes) wanted="$build $lab $test python3-yaml" if_there=$test_if_there ;;
otlp) wanted="$build python3" if_there="" ;;
slurm) wanted="slurmctld slurmd slurm-client munge redis-server redis-tools python3 util-linux" if_there="" ;;
*) echo "usage: $0 build|lab|demo|test|clients|kubernetes|otlp|slurm" >&2; exit 2 ;;
esac

if ! command -v cargo >/dev/null; then
	echo "deps: Rust is missing: install it with rustup, see https://rustup.rs" >&2
	exit 1
fi
if ! command -v dpkg-query >/dev/null; then
	echo "deps: not a Debian system; please make sure that you have what these packages hold: $wanted" >&2
	exit 0
fi

is_installed() {
	status=$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null || true)
	[ "$status" = "install ok installed" ]
}

missing=""
for package in $wanted; do
	is_installed "$package" || missing="$missing $package"
done
for package in $if_there; do
	is_installed "$package" || ! apt-cache show "$package" >/dev/null 2>&1 || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
	sudo=sudo
fi
echo "deps: installing$missing"
$sudo apt-get update -qq
# Slim images often exclude documentation from packages; here documentation is the corpus.
# shellcheck disable=SC2086 # a list of packages
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	-o Dpkg::Options::=--path-include=/usr/share/doc/* $missing >/dev/null
