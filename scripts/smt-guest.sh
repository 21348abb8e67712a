#!/bin/sh
# Tests Sidelane on a machine with SMT: a small QEMU guest (software emulation) of two cores with
# two lanes each, with a kernel, an initramfs of busybox, the binaries and tests/smt. Times in an
# emulator have no meaning, so these tests check function, not speed.
#
# The kernel is one of Debian's cloud images, which is downloaded, or our own, built by smt-kernel.sh,
# which also has core scheduling and modules. Tests that need a feature that the kernel lacks are
# skipped. Debian 12's own QEMU 7.2 double-faults here.
set -eu

# Debian's series of kernels, and the suite that each is in. Only those from 6.18 on have sched_ext.
KERNELS='5.10 bullseye
6.1 bookworm
6.12 bookworm-backports
6.18 trixie-backports'
DEFAULT_SERIES=6.18

usage() {
	cat <<-END
	usage: scripts/smt-guest.sh [--kernel auto|built|SERIES] [--build-kernel] [--binaries DIR]
	                            [--cache DIR] [--timeout SECONDS] [TEST...]

	Boots an emulated SMT machine and runs the tests of tests/smt in it: all, or those named.
	  --kernel KIND      built: our own, with core scheduling and modules; a series of Debian's
	                     cloud images, without them: $(series_known); auto: our own if it has
	                     been built, else $DEFAULT_SERIES [auto]
	  --build-kernel     build our own first, unless that has been done: 13 minutes of CPU time
	  --binaries DIR     where sidelane and sidelane-lab are [target/release]
	  --cache DIR        where QEMU, busybox and the kernel are kept between runs; the first run
	                     fetches about 100 MB with apt, without installing anything
	                     [\$XDG_CACHE_HOME/sidelane/smt-guest]
	  --timeout SECONDS  when the guest is given up [900]
	Exit code: 0 all tests passed, 1 one failed, 2 wrong arguments, $SKIPPED skipped: something that
	is needed is not available here.
	END
}

series_known() {
	echo "$KERNELS" | cut -d ' ' -f 1 | tr '\n' ' ' | sed 's/ $//'
}

# The suite that has this series; nothing for any other word.
suite_of() {
	echo "$KERNELS" | awk -v series="$1" '$1 == series { print $2 }'
}

parse_arguments() {
	binaries=$root/target/release
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/sidelane/smt-guest
	timeout_s=900
	kernel=auto
	build_kernel=
	tests=
	while [ $# -gt 0 ]; do
		case $1 in
		--binaries | --cache | --timeout | --kernel)
			[ $# -ge 2 ] || { usage >&2; exit 2; }
			case $1 in
			--binaries) binaries=$2 ;;
			--cache) cache=$2 ;;
			--timeout) timeout_s=$2 ;;
			--kernel) kernel=$2 ;;
			esac
			shift
			;;
		--build-kernel) build_kernel=yes ;;
		-h | --help) usage; exit 0 ;;
		-*) usage >&2; exit 2 ;;
		*) tests="$tests $1" ;;
		esac
		shift
	done
	series=$kernel
	case $kernel in
	auto | built) series=$DEFAULT_SERIES ;;
	esac
	suite=$(suite_of "$series")
	[ -n "$suite" ] || { usage >&2; exit 2; }
	mkdir -p "$cache"
	cache=$(cd "$cache" && pwd)
}

# ---- The guest's parts ----

need_busybox() {
	[ ! -x "$cache/busybox/bin/busybox" ] || return 0
	open_packages "$suite"
	unpack busybox busybox-static
	keep busybox
}

# Chooses the kernel: sets `image`, and `tree` if modules can be built for it.
choose_kernel() {
	tree=
	built=
	if [ -n "$build_kernel" ]; then
		built=$("$root/scripts/smt-kernel.sh" --cache "$cache") || exit $?
	elif [ "$kernel" != "$series" ]; then
		built=$("$root/scripts/smt-kernel.sh" --cache "$cache" --find) || true
	fi
	if [ -n "$built" ] && [ "$kernel" != "$series" ]; then
		image=$built/vmlinuz
		tree=$built/tree
		say "kernel: our own ($(basename "$built"))"
		return
	fi
	[ "$kernel" != built ] || skip "our own kernel has not been built: add --build-kernel"
	need_debian_kernel
	say "kernel: Debian's cloud image $series; our own, with core scheduling and modules, comes with --build-kernel"
}

need_debian_kernel() {
	image=$cache/kernel-$series/vmlinuz
	[ ! -e "$image" ] || return 0
	open_packages "$suite"
	package=$(private apt-cache pkgnames "linux-image-$series." | grep -- '-cloud-amd64$' | sort -V | tail -n 1)
	[ -n "$package" ] || skip "$suite has no cloud kernel $series any more"
	unpack image "$package"
	mkdir "$scratch/kernel-$series"
	# Neither its modules nor its symbols are needed.
	mv "$scratch/image/boot"/vmlinuz-* "$scratch/kernel-$series/vmlinuz"
	keep "kernel-$series"
}

# QEMU, with those of its dependencies that are not installed here.
need_qemu() {
	[ ! -x "$cache/qemu/usr/bin/qemu-system-x86_64" ] || return 0
	open_packages "$suite"
	set --
	[ "$codename" != bookworm ] || set -- --target-release bookworm-backports
	wanted=$(with_dependencies "$@" qemu-system-x86)
	# If QEMU is installed, there is nothing to download.
	[ -n "$wanted" ] || wanted="qemu-system-x86"
	# Its firmware may be installed here, so both places are searched.
	# shellcheck disable=SC2086 # a list of packages
	unpack qemu $wanted
	keep qemu
}

# ---- The guest ----

# Makes an initramfs with all of the guest's files.
make_initramfs() {
	guest=$scratch/guest
	mkdir -p "$guest/bin"
	cp "$cache/busybox/bin/busybox" "$guest/bin/"
	cp "$root/tests/smt"/*.sh "$guest/"
	chmod +x "$guest/init.sh"
	echo "$tests" >"$guest/wanted"
	echo "${SMT_STRESS_SECONDS:-10}" >"$guest/stress-seconds"
	for binary in sidelane sidelane-lab; do
		[ -x "$binaries/$binary" ] || fail "$binaries/$binary is missing: build it first (make build)"
		cp "$binaries/$binary" "$guest/bin/"
		# Debug information is most of a binary, and the guest has little memory.
		strip "$guest/bin/$binary" 2>/dev/null || true
		copy_libraries "$binaries/$binary"
	done
	[ -z "$tree" ] || add_module
	(cd "$guest" && find . | "$cache/busybox/bin/busybox" cpio -o -H newc 2>/dev/null) >"$scratch/initramfs"
}

# The module of kmod/nanonap and its test program.
add_module() {
	module=$scratch/nanonap
	mkdir "$module"
	(cd "$root/kmod/nanonap" && cp Kbuild Makefile ./*.c ./*.h "$module/")
	build_module >"$scratch/module-log" 2>&1 || { cat "$scratch/module-log" >&2; fail "kmod/nanonap cannot be built"; }
	strip -g "$module/nanonap.ko"
	cp "$module/nanonap.ko" "$guest/"
	cp "$module/nanonap-test" "$guest/bin/"
}

build_module() {
	make -s -C "$tree" M="$module" modules && make -s -C "$module" CC='gcc -static' nanonap-test
}

copy_libraries() {
	ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
		mkdir -p "$guest/$(dirname "$library")"
		cp -L "$library" "$guest/$library"
	done
}

# The emulated processor. It is AMD's, whose siblings kernels before 6.9 find by a leaf of CPUID that the emulator lacks;
# they find those of Intel's by one that it has.
processor() {
	case $image in
	*/kernel-5.* | */kernel-6.1/*) echo max,vendor=GenuineIntel ;;
	*) echo max ;;
	esac
}

# Boots the guest and waits for its end; the console goes to a file. The kernel does not check its timer, since that fails
# where the host takes the CPUs away meanwhile.
boot() {
	usr=$cache/qemu/usr
	lib=$usr/lib/x86_64-linux-gnu
	# In the background, since a shell that waits for a foreground process delays POSIX signals.
	LD_LIBRARY_PATH="$lib:$cache/qemu/lib/x86_64-linux-gnu" QEMU_MODULE_DIR="$lib/qemu" timeout "$timeout_s" \
		"$usr/bin/qemu-system-x86_64" -accel tcg \
		-L "$usr/share/qemu" -L "$usr/share/seabios" -L /usr/share/qemu -L /usr/share/seabios \
		-machine q35 -cpu "$(processor)" -smp 4,sockets=1,cores=2,threads=2 -m 512M \
		-nodefaults -no-user-config -display none -no-reboot -serial "file:$console" \
		-kernel "$image" -initrd "$scratch/initramfs" \
		-append 'console=ttyS0 panic=-1 quiet no_timer_check rdinit=/init.sh' </dev/null 2>"$scratch/qemu-errors" &
	qemu=$!
	wait "$qemu" || true
	qemu=
}

# Prints the tests' lines. The result is taken from the console: QEMU's exit code tells little.
judge() {
	tr -d '\r' <"$console" | grep -E '^SMT-(TEST|DOCTOR) ' >"$scratch/verdicts" || true
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

# Ends the guest and removes its files, however this script ends.
clean_up() {
	[ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true
	rm -rf "$scratch"
}

root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/smt-packages.sh
. "$root/scripts/smt-packages.sh"
qemu=
parse_arguments "$@"
scratch=$(mktemp -d "$cache/run.XXXXXX")
console=$scratch/console
: >"$console"
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
need_busybox
choose_kernel
need_qemu
make_initramfs
say "booting"
boot
judge
