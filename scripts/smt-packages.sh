# shellcheck shell=sh
# Downloads and unpacks Debian packages without changes to the system. The scripts of the guest with
# SMT source this file. They set `scratch`, a folder that they remove at their end, and `cache`,
# which stays.

SKIPPED=77
apt=

say() {
	echo "$(basename "$0" .sh): $*" >&2
}

# Ends the script as skipped: the machine lacks something, which is not a failure of the tests.
skip() {
	say "SKIPPED: $*"
	exit $SKIPPED
}

fail() {
	say "$*"
	exit 1
}

# Runs apt with sources and state of its own; only the list of installed packages is the system's.
private() {
	apt_tool=$1
	shift
	"$apt_tool" -qq -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root \
		-o APT::Update::Error-Mode=any -o Acquire::Retries=2 "$@"
}

# The address from which this machine gets its own release.
mirror() {
	# shellcheck disable=SC2016 # apt's own fields
	apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		awk -v release="$1" '$1 == release { print $2; exit }'
}

# Makes the private sources, once in each run, and downloads the package lists of this machine's
# release and of the suites $*.
open_packages() {
	[ -z "$apt" ] || return 0
	for tool in apt-get apt-cache dpkg; do
		command -v $tool >/dev/null || skip "$tool is missing: QEMU and the kernel come from Debian packages"
	done
	[ "$(dpkg --print-architecture)" = amd64 ] || skip "only set up for amd64 machines"
	codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
	mirror=$(mirror "$codename")
	[ -n "$mirror" ] || skip "apt on this machine names no mirror for the release '$codename'"
	# shellcheck disable=SC2154 # the including script's
	apt=$scratch/apt
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
	write_sources "$@" >"$apt/sources.list"
	say "reading package lists"
	private apt-get update || skip "the package lists of $codename $* cannot be downloaded"
}

write_sources() {
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	options=arch=amd64
	[ ! -e $keyring ] || options="$options signed-by=$keyring"
	set -- "$codename" "$@"
	[ "$codename" != bookworm ] || set -- "$@" bookworm-backports
	printf '%s\n' "$@" | sort -u | while read -r wanted_suite; do
		echo "deb [$options] $mirror $wanted_suite main"
	done
}

# The packages to download for these packages: with those of their dependencies that are not
# installed here. Options of apt-get may be among the arguments.
with_dependencies() {
	private apt-get --simulate --no-install-recommends install "$@" |
		sed -n 's/^Inst \([^ ]*\) .*(\([^ ]*\) .*/\1=\2/p'
}

# Downloads packages and unpacks them into a folder of the scratch folder.
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
	rm -f "$scratch/debs"/*.deb
}

# Puts an unpacked folder, or a part of it, into the cache, with a rename, so that it is complete.
keep() {
	rm -rf "${cache:?}/$1"
	mv "$scratch/$1" "$cache/$1"
}
