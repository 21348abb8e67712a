#!/bin/sh
# Builds our own kernel for the guest of smt-guest.sh: Debian's kernel source with
# tests/smt/kernel.config merged over tinyconfig. Keeps the image and the files that are needed to
# build a module for it.
set -eu

KERNEL_SOURCE=linux-source-6.12

usage() {
	cat <<-END
	usage: scripts/smt-kernel.sh [--cache DIR] [--find]

	Builds the guest's own kernel unless it is there already, and prints the folder it is in.
	The first build fetches about 160 MB with apt, without installing anything, needs 4 GB of
	disk for the time it takes and about 13 minutes of CPU time.
	  --cache DIR   where it is kept [\$XDG_CACHE_HOME/sidelane/smt-guest]
	  --find        only look: print the folder, or end with 1
	Exit code: 0 it is there, 1 it is not, or the build failed, 2 wrong arguments, 77 skipped:
	something that is needed is not available here.
	END
}

parse_arguments() {
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/sidelane/smt-guest
	only_find=
	while [ $# -gt 0 ]; do
		case $1 in
		--cache)
			[ $# -ge 2 ] || { usage >&2; exit 2; }
			cache=$2
			shift
			;;
		--find) only_find=yes ;;
		-h | --help) usage; exit 0 ;;
		*) usage >&2; exit 2 ;;
		esac
		shift
	done
	mkdir -p "$cache"
	cache=$(cd "$cache" && pwd)
}

# The inputs of the kernel besides its source: another configuration or compiler makes another
# kernel, and a module has to be built with its kernel's compiler.
fingerprint() {
	{
		grep -v '^#' "$config"
		gcc -dumpversion 2>/dev/null || true
	} | sha256sum | cut -c 1-12
}

# The newest kernel in the cache with this configuration.
find_built() {
	for folder in "$cache"/built-*-"$(fingerprint)"; do
		[ ! -e "$folder/vmlinuz" ] || echo "$folder"
	done | sort -V | tail -n 1
}

# ---- Tools ----

# Downloads the tools that are missing here, except the compiler and the libraries it links with.
need_tools() {
	for tool in gcc make perl ld objcopy strip xz; do
		command -v $tool >/dev/null || skip "$tool is missing, and the kernel cannot be built without it"
	done
	for header in libelf.h zlib.h; do
		echo "#include <$header>" | gcc -E - >/dev/null 2>&1 || skip "$header is missing: run 'make deps'"
	done
	missing=
	for tool in bc flex bison m4 pahole; do
		command -v $tool >/dev/null || missing="$missing $tool"
	done
	[ -z "$missing" ] || fetch_tools
}

fetch_tools() {
	# Each tool has the name of its package.
	# shellcheck disable=SC2046,SC2086 # lists of packages
	unpack tools $(with_dependencies $missing)
	tools=$scratch/tools/usr
	PATH=$tools/bin:$PATH
	LD_LIBRARY_PATH=$tools/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export PATH LD_LIBRARY_PATH
	# The tools look for their own parts in the paths of an installation.
	[ ! -x "$tools/bin/m4" ] || export M4="$tools/bin/m4"
	[ ! -d "$tools/share/bison" ] || export BISON_PKGDATADIR="$tools/share/bison"
}

# ---- The build ----

unpack_source() {
	unpack source "$KERNEL_SOURCE"
	say "unpacking the source"
	tar xf "$scratch/source/usr/src/$KERNEL_SOURCE.tar.xz" -C "$scratch"
	rm -rf "$scratch/source"
	tree=$scratch/$KERNEL_SOURCE
	version=$(in_tree kernelversion)
}

# Runs make in the kernel's tree. Its output is long, so it is only shown on failure.
in_tree() {
	make --no-print-directory -s -C "$tree" "$@"
}

configure() {
	{
		in_tree tinyconfig
		(cd "$tree" && scripts/kconfig/merge_config.sh -m -Q .config "$config")
		in_tree olddefconfig
	} >"$log" 2>&1 || give_up "configuring"
	grep '^CONFIG_' "$config" | while read -r wanted; do
		grep -qx "$wanted" "$tree/.config" || say "not in $version: $wanted"
	done
}

build() {
	say "building Linux $version: about 13 minutes of CPU time"
	in_tree -j"$(nproc)" bzImage modules >"$log" 2>&1 || give_up "building"
	cp "$tree/arch/x86/boot/bzImage" "$result/vmlinuz"
}

give_up() {
	tail -n 30 "$log" >&2
	fail "$1 Linux $version failed"
}

# Keeps the content of Debian's header packages: the tree in which modules are built, without its
# sources.
keep_tree() {
	(cd "$tree" && env srctree=. SRCARCH=x86 ARCH=x86 CC=gcc HOSTCC=gcc MAKE=make \
		scripts/package/install-extmod-build "$result/tree") >>"$log" 2>&1 || give_up "keeping the headers of"
	find "$result/tree/scripts" "$result/tree/tools" -type f -perm -u+x -exec strip -g {} + 2>/dev/null || true
}

clean_up() {
	rm -rf "$scratch"
}

root=$(cd "$(dirname "$0")/.." && pwd)
config=$root/tests/smt/kernel.config
# shellcheck source=scripts/smt-packages.sh
. "$root/scripts/smt-packages.sh"
parse_arguments "$@"
found=$(find_built)
if [ -n "$found" ]; then
	echo "$found"
	exit 0
fi
[ -z "$only_find" ] || exit 1
scratch=$(mktemp -d "$cache/kernel.XXXXXX")
log=$scratch/log
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
# shellcheck disable=SC2119 # no further suites
open_packages
need_tools
unpack_source
result=$scratch/result
mkdir "$result"
configure
build
keep_tree
folder=$cache/built-$version-$(fingerprint)
rm -rf "$folder"
mv "$result" "$folder"
echo "$folder"
