#!/bin/sh
# Installs what was built. Usage: install.sh product|lab BIN DESTDIR PREFIX
# BIN is the folder of the built programs, such as target/dist; files go below DESTDIR.
set -eu
cd "$(dirname "$0")/.."
part=$1 bin=$2 root=$3 prefix=$4
to=$root$prefix

if [ "$part" = lab ]; then
	install -D -m 755 "$bin/sidelane-lab" "$to/bin/sidelane-lab"
	"$bin/sidelane-lab-packaging" "$to/share"
	gzip -9nf "$to"/share/man/man1/sidelane-lab*.1
	install -d "$to/share/sidelane/scenarios"
	install -m 644 lab/scenarios/*.toml "$to/share/sidelane/scenarios"
	install -D -m 644 lab/README.md "$to/share/doc/sidelane-lab/README.md"
	install -m 644 LICENSE "$to/share/doc/sidelane-lab/copyright"
	exit
fi

install -D -m 755 "$bin/sidelane" "$to/bin/sidelane"
install -D -m 755 "$bin/libsidelane_gate.so" "$to/lib/libsidelane_gate.so"
"$bin/sidelane-packaging" "$to/share"
gzip -9nf "$to"/share/man/man1/sidelane*.1

# The headers name each other by these relative paths.
install -d "$to/include/sidelane/abi" "$to/include/sidelane/runtime/c"
install -m 644 abi/*.h "$to/include/sidelane/abi"
install -m 644 runtime/c/*.h "$to/include/sidelane/runtime/c"
if [ -e runtime/java/target/sidelane-agent.jar ]; then
	# The jar loads the libraries beside it.
	install -d "$to/lib/sidelane"
	install -m 644 runtime/java/target/sidelane-agent.jar "$to/lib/sidelane"
	install -m 755 runtime/java/target/libsidelane_java.so runtime/java/target/libsidelane_emit.so "$to/lib/sidelane"
fi

# For Grafana and Prometheus: nothing reads them here.
install -D -m 644 packaging/grafana/sidelane.json "$to/share/sidelane/grafana/sidelane.json"
install -D -m 644 packaging/prometheus/sidelane.rules.yml "$to/share/sidelane/prometheus/sidelane.rules.yml"

install -d "$to/lib/systemd/system" "$to/share/doc/sidelane"
sed "s|@PREFIX@|$prefix|" packaging/sidelane.service >"$to/lib/systemd/system/sidelane.service"
chmod 644 "$to/lib/systemd/system/sidelane.service"
install -D -m 644 packaging/sidelane.logrotate "$root/etc/logrotate.d/sidelane"
# A file that the user has changed stays.
[ -e "$root/etc/sidelane.toml" ] || install -D -m 644 crates/agent/src/config/example.toml "$root/etc/sidelane.toml"

install -m 644 README.md CHANGELOG.md SECURITY.md "$to/share/doc/sidelane"
install -m 644 LICENSE "$to/share/doc/sidelane/copyright"
cp -r --no-preserve=mode,ownership docs "$to/share/doc/sidelane/docs"
