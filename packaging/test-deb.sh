#!/bin/sh
# Installs the package in a bare Debian 12, upgrades it, removes it and purges it: files that are left are an error.
# Usage: test-deb.sh BIN PACKAGES VERSION. Needs root, debootstrap and a mirror of Debian.
set -eu
cd "$(dirname "$0")/.."
bin=$1 packages=$2 version=$3
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sidelane/debian-12.tar
package=sidelane_${version}_$(dpkg --print-architecture).deb
[ "$(id -u)" -eq 0 ] || { echo "test-deb: needs root for a Debian of its own; run it as root" >&2; exit 1; }

if [ ! -e "$cache" ]; then
	command -v debootstrap >/dev/null || apt-get install -y -qq debootstrap >/dev/null
	made=$(mktemp -d)
	debootstrap --variant=minbase --include=logrotate bookworm "$made" >"$packages/debootstrap.log" ||
		{ echo "test-deb: debootstrap failed; see $packages/debootstrap.log" >&2; exit 1; }
	mkdir -p "$(dirname "$cache")"
	tar -C "$made" -cf "$cache" .
	rm -rf "$made"
fi

root=$(mktemp -d)
chmod 755 "$root"
clean() {
	for mounted in sys/fs/cgroup sys dev proc; do
		! mountpoint -q "$root/$mounted" || umount -R "$root/$mounted"
	done
	# Mounts of the host are below it if one could not be unmounted.
	grep -q " $root/" /proc/mounts || rm -rf "$root"
}
trap clean EXIT
tar -C "$root" -xf "$cache"
cp "$packages/$package" "$root/tmp/first.deb"
# The same programs as a later version.
next=$(mktemp -d)
packaging/package.sh deb "$bin" "$next" "$version.1" >/dev/null
mv "$next/sidelane_${version}.1_"*.deb "$root/tmp/second.deb"
rm -r "$next"
# The host's resolver and mirror, for libraries that the package depends on.
rm -f "$root/etc/apt/sources.list"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/auth.conf.d; do
	[ ! -e "$file" ] || cp -rn "$file" "$root$(dirname "$file")/"
done
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --make-rslave "$root/sys"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"

inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
# All files but those of apt and dpkg themselves, and of the kernel.
files() {
	inside find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/lib/apt -o -path /var/cache \
		-o -path /var/lib/dpkg -o -path /var/log -o -path /etc/ld.so.cache \) -prune -o -print | sort
}
step() { echo "test-deb: $*"; }
# The shell does not end where a command behind `!` succeeds.
must_not() { if "$@"; then echo "test-deb: must fail: $*" >&2; exit 1; fi; }

inside apt-get update -qq
# Libraries of other packages stay when this one goes, so they come before the first list of files.
depends=$(dpkg-deb -f "$root/tmp/first.deb" Depends | sed 's/([^)]*)//g; s/,/ /g')
# shellcheck disable=SC2086 # a list of packages
inside apt-get install -y -qq --no-install-recommends $depends >/dev/null
files >"$root/tmp/before"

step "install"
inside apt-get install -y -qq -o Dpkg::Use-Pty=0 /tmp/first.deb
must_not inside sh -c 'command -v rustc'
inside sidelane --version
code=0
inside sidelane doctor --quick >"$root/tmp/doctor" 2>&1 || code=$?
head -n 1 "$root/tmp/doctor"
# 1 is a verdict on this machine. Other codes, or no words, are a failure of the package.
[ $code -le 1 ] && grep -q 'sidelane' "$root/tmp/doctor" || { cat "$root/tmp/doctor"; exit 1; }
inside sidelane agent check /etc/sidelane.toml
inside sh -c 'test -e /usr/share/man/man1/sidelane-run.1.gz || grep -rqs man /etc/dpkg/dpkg.cfg.d'
inside bash -n /usr/share/bash-completion/completions/sidelane
inside logrotate --debug /etc/logrotate.d/sidelane 2>/dev/null

step "upgrade: a changed configuration stays"
inside sh -c 'echo "# changed" >>/etc/sidelane.toml'
inside apt-get install -y -qq -o Dpkg::Use-Pty=0 /tmp/second.deb
inside dpkg-query -W sidelane | grep -q "$version.1"
inside grep -q '^# changed' /etc/sidelane.toml

step "remove: the configuration stays"
inside apt-get remove -y -qq -o Dpkg::Use-Pty=0 sidelane
inside test -e /etc/sidelane.toml
must_not inside test -e /usr/bin/sidelane

step "purge: nothing stays"
touch "$root/var/log/sidelane-audit.jsonl"
inside apt-get purge -y -qq -o Dpkg::Use-Pty=0 sidelane
files >"$root/tmp/after"
diff "$root/tmp/before" "$root/tmp/after" || { echo "test-deb: files are left, see above" >&2; exit 1; }
must_not ls "$root/var/log/sidelane-audit.jsonl" 2>/dev/null
echo "test-deb: installed, upgraded, removed and purged; nothing is left"
