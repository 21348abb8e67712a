#!/bin/sh
# Makes packages of what was built. Usage: package.sh deb|tarball BIN OUT VERSION
set -eu
cd "$(dirname "$0")/.."
kind=$1 bin=$2 out=$3 version=$4
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$kind" = tarball ]; then
	name=sidelane-$version-$(uname -m)-linux
	packaging/install.sh product "$bin" "$work/$name" /usr
	tar -C "$work" --owner=0 --group=0 --sort=name -cJf "$out/$name.tar.xz" "$name"
	echo "$out/$name.tar.xz"
	exit
fi

# deb NAME PART PROGRAMS: makes a package. PROGRAMS are those whose libraries it depends on.
deb() {
	name=$1 part=$2 tree=$work/$1
	shift 2
	packaging/install.sh "$part" "$bin" "$tree" /usr
	mkdir -p "$work/debian" "$tree/DEBIAN"
	echo "Source: sidelane" >"$work/debian/control"
	for program; do set -- "$@" "-e$tree$program"; shift; done
	depends=$(cd "$work" && dpkg-shlibdeps -O "$@" 2>/dev/null | sed 's/^shlibs:Depends=//')
	[ -n "$depends" ] || { echo "package: dpkg-shlibdeps finds no libraries; install dpkg-dev" >&2; exit 1; }
	sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$(dpkg --print-architecture)/" -e "s/@DEPENDS@/$depends/" \
		-e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$tree" | cut -f1)/" "packaging/debian/$name.control" >"$tree/DEBIAN/control"
	for script in postinst prerm postrm conffiles; do
		[ ! -e "packaging/debian/$name.$script" ] || cp "packaging/debian/$name.$script" "$tree/DEBIAN/$script"
	done
	chmod -R go-w "$tree"
	dpkg-deb --root-owner-group --build -Zxz "$tree" "$out/${name}_${version}_$(dpkg --print-architecture).deb"
}

deb sidelane product /usr/bin/sidelane /usr/lib/libsidelane_gate.so
if [ -e "$bin/sidelane-lab" ]; then
	deb sidelane-lab lab /usr/bin/sidelane-lab
fi
