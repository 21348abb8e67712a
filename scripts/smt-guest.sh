#!/bin/sh
# Tests Sidelane on a machine with SMT: a small QEMU guest (software emulation) of two cores with
# two lanes each, Debian's cloud kernel and an initramfs of busybox, the binaries and tests/smt.
# Emulated time means nothing, so this proves function, not speed.
set -eu

# What is fetched. Debian 12's own QEMU 7.2 double-faults here; kernels before 6.18 are not what
# this test is about.
KERNEL_SERIES=6.18
KERNEL_SUITE=trixie-backports
SKIPPED=77

usage() {
	cat <<-END
	usage: scripts/smt-guest.sh [--binaries DIR] [--cache DIR] [--timeout SECONDS] [TEST...]

	Boots an emulated SMT machine and runs the tests of tests/smt in it: all, or those named.
	  --binaries DIR     where sidelane and sidelane-lab are [target/release]
	  --cache DIR        where QEMU, busybox and the kernel are kept between runs; the first run
	                     fetches about 100 MB with apt, without installing anything
	                     [\$XDG_CACHE_HOME/sidelane/smt-guest]
	  --timeout SECONDS  when the guest is given up [180]
	Exit code: 0 all tests passed, 1 one failed, 2 wrong arguments, $SKIPPED skipped: something that
	is needed cannot be had here.
	END
}

say() {
	echo "smt-guest: $*" >&2
}

# Ends the script: the machine lacks something, and that is no failure of what is tested.
skip() {
	say "SKIPPED: $*"
	exit $SKIPPED
}

fail() {
	say "$*"
	exit 1
}

parse_arguments() {
	binaries=$root/target/release
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/sidelane/smt-guest
	timeout_s=180
	tests=
	while [ $# -gt 0 ]; do
		case $1 in
		--binaries | --cache | --timeout)
			[ $# -ge 2 ] || { usage >&2; exit 2; }
			case $1 in
			--binaries) binaries=$2 ;;
			--cache) cache=$2 ;;
			--timeout) timeout_s=$2 ;;
			esac
			shift
			;;
		-h | --help) usage; exit 0 ;;
		-*) usage >&2; exit 2 ;;
		*) tests="$tests $1" ;;
		esac
		shift
	done
	mkdir -p "$cache"
	cache=$(cd "$cache" && pwd)
}

# ---- Packages, fetched and unpacked without touching the system ----

# apt with sources and state of its own; only the list of installed packages is the system's.
private() {
	apt_tool=$1
	shift
	"$apt_tool" -qq -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root \
		-o APT::Update::Error-Mode=any -o Acquire::Retries=2 "$@"
}

# The address that this machine has its own release from.
mirror() {
	# shellcheck disable=SC2016 # apt's own fields
	apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		awk -v release="$1" '$1 == release { print $2; exit }'
}

# Makes the private sources, once a run, and reads the lists.
open_packages() {
	[ -z "$apt" ] || return 0
	for tool in apt-get apt-cache dpkg; do
		command -v $tool >/dev/null || skip "$tool is missing: QEMU and the kernel come from Debian packages"
	done
	[ "$(dpkg --print-architecture)" = amd64 ] || skip "only set up for amd64 machines"
	codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
	mirror=$(mirror "$codename")
	[ -n "$mirror" ] || skip "apt on this machine names no mirror for the release '$codename'"
	apt=$scratch/apt
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
	write_sources >"$apt/sources.list"
	say "reading package lists"
	private apt-get update || skip "the package lists of $codename and $KERNEL_SUITE cannot be had"
}

write_sources() {
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	options=arch=amd64
	[ ! -e $keyring ] || options="$options signed-by=$keyring"
	suites="$codename $KERNEL_SUITE"
	[ "$codename" != bookworm ] || suites="$suites bookworm-backports"
	for suite in $suites; do
		echo "deb [$options] $mirror $suite main"
	done
}

# Downloads packages and unpacks them into a folder of the cache, which appears when complete.
unpack() {
	folder=$1
	shift
	say "fetching $folder: $(echo "$@" | wc -w) package(s)"
	mkdir -p "$scratch/debs" "$scratch/$folder"
	rm -f "$scratch/debs"/*.deb
	(cd "$scratch/debs" && private apt-get download "$@") || skip "cannot download $*"
	for package in "$scratch/debs"/*.deb; do
		dpkg -x "$package" "$scratch/$folder"
	done
}

# Puts an unpacked folder, or a part of it, into the cache.
keep() {
	rm -rf "${cache:?}/$1"
	mv "$scratch/$1" "$cache/$1"
}

need_busybox() {
	[ ! -x "$cache/busybox/bin/busybox" ] || return 0
	open_packages
	unpack busybox busybox-static
	keep busybox
}

need_kernel() {
	[ ! -e "$cache/kernel/vmlinuz" ] || return 0
	open_packages
	kernel=$(private apt-cache pkgnames "linux-image-$KERNEL_SERIES" | grep -- '-cloud-amd64$' | sort -V | tail -n 1)
	[ -n "$kernel" ] || skip "$KERNEL_SUITE has no cloud kernel $KERNEL_SERIES any more"
	unpack image "$kernel"
	mkdir "$scratch/kernel"
	# Neither modules nor symbols are needed.
	mv "$scratch/image/boot"/vmlinuz-* "$scratch/kernel/vmlinuz"
	keep kernel
}

# QEMU with those of its dependencies that are not installed here.
need_qemu() {
	[ ! -x "$cache/qemu/usr/bin/qemu-system-x86_64" ] || return 0
	open_packages
	set -- --no-install-recommends
	[ "$codename" != bookworm ] || set -- "$@" --target-release bookworm-backports
	wanted=$(private apt-get --simulate "$@" install qemu-system-x86 | sed -n 's/^Inst \([^ ]*\) .*(\([^ ]*\) .*/\1=\2/p')
	# Where it is installed there is nothing to install.
	[ -n "$wanted" ] || wanted="qemu-system-x86"
	# Its firmware may be installed here, so it is looked for in both places.
	# shellcheck disable=SC2086 # a list of packages
	unpack qemu $wanted
	keep qemu
}

# ---- The guest ----

# An initramfs with everything the guest has.
make_initramfs() {
	guest=$scratch/guest
	mkdir -p "$guest/bin"
	cp "$cache/busybox/bin/busybox" "$guest/bin/"
	cp "$root/tests/smt"/*.sh "$guest/"
	chmod +x "$guest/init.sh"
	echo "$tests" >"$guest/wanted"
	for binary in sidelane sidelane-lab; do
		[ -x "$binaries/$binary" ] || fail "$binaries/$binary is missing: build it first (make build)"
		cp "$binaries/$binary" "$guest/bin/"
		# Debug information is most of a binary, and the guest's memory is small.
		strip "$guest/bin/$binary" 2>/dev/null || true
		copy_libraries "$binaries/$binary"
	done
	(cd "$guest" && find . | "$cache/busybox/bin/busybox" cpio -o -H newc 2>/dev/null) >"$scratch/initramfs"
}

copy_libraries() {
	ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
		mkdir -p "$guest/$(dirname "$library")"
		cp -L "$library" "$guest/$library"
	done
}

# Boots the guest and waits for its end; its console goes to a file.
boot() {
	usr=$cache/qemu/usr
	lib=$usr/lib/x86_64-linux-gnu
	# In the background, since a shell that waits for a foreground process puts signals off.
	LD_LIBRARY_PATH="$lib:$cache/qemu/lib/x86_64-linux-gnu" QEMU_MODULE_DIR="$lib/qemu" timeout "$timeout_s" \
		"$usr/bin/qemu-system-x86_64" -accel tcg \
		-L "$usr/share/qemu" -L "$usr/share/seabios" -L /usr/share/qemu -L /usr/share/seabios \
		-machine q35 -cpu max -smp 4,sockets=1,cores=2,threads=2 -m 512M \
		-nodefaults -no-user-config -display none -no-reboot -serial "file:$console" \
		-kernel "$cache/kernel/vmlinuz" -initrd "$scratch/initramfs" \
		-append 'console=ttyS0 panic=-1 quiet rdinit=/init.sh' </dev/null 2>"$scratch/qemu-errors" &
	qemu=$!
	wait "$qemu" || true
	qemu=
}

# Prints the tests' lines. The result is what the guest said: QEMU's exit code says little.
judge() {
	tr -d '\r' <"$console" | grep '^SMT-TEST ' >"$scratch/verdicts" || true
	cat "$scratch/verdicts"
	cp "$console" "$cache/console.log"
	if ! grep -q '^SMT-TEST done' "$scratch/verdicts"; then
		cat "$scratch/qemu-errors" >&2
		tail -n 30 "$console" >&2
		fail "the guest did not get to the end of its tests (within $timeout_s s)"
	fi
	if grep -Eq '^SMT-TEST [^ ]+ FAILED' "$scratch/verdicts"; then
		fail "what the guest said is in $cache/console.log"
	fi
}

# Leaves neither the guest nor its files behind, however this ends.
clean_up() {
	[ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true
	rm -rf "$scratch"
}

root=$(cd "$(dirname "$0")/.." && pwd)
apt=
qemu=
parse_arguments "$@"
scratch=$(mktemp -d "$cache/run.XXXXXX")
console=$scratch/console
: >"$console"
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
need_busybox
need_kernel
need_qemu
make_initramfs
say "booting"
boot
judge
