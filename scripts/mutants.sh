#!/bin/sh
# Breaks the pure code in one place at a time (a mutant) and runs the tests of its crate: one of them has to fail.
# The mutants are those of cargo-mutants: comparisons, `&&` and `||`, arithmetic, `!`, returned values, match arms and
# fields of structs; `min` for `max` is not among them. .cargo/mutants.toml excludes equivalent mutants, with reasons.
set -eu

# Name, package, options of cargo-mutants that choose its files.
CRATES="
policy sidelane-policy --file=crates/policy/src/**
trace sidelane-timeline --file=crates/timeline/src/**
proxy sidelane-proxy --file=crates/proxy/src/{access,request_table,http,resp,edge}/** --exclude=**/edge/{client_memory,listen,mod,timers}.rs
formats sidelane-formats --file=crates/formats/src/**
sim sidelane-sim --file=crates/sim/src/** --exclude=crates/sim/src/run/**
"
SAMPLE=100
# Cases of each property test.
CASES=500

usage() {
	cat <<-END
	usage: scripts/mutants.sh [--seed N] [--sample N] [--file PATH] [CRATE...]

	Tests $SAMPLE random mutants of each crate, or of those named:$(echo "$CRATES" | cut -d ' ' -f 1 | tr '\n' ' ')
	  --seed N      another sample than that of seed 0
	  --sample N    about N mutants of each crate
	  --file PATH   all mutants of one file
	Prints for each crate how many a test has caught, and the missed ones. Mutants are built one after the other in
	target/mutants; one takes 5 to 40 s. A mutant that runs into the time limit of the tests counts as noticed.
	END
}

seed=0
sample=$SAMPLE
file=
only=
while [ $# -gt 0 ]; do
	case $1 in
	--seed | --sample | --file)
		[ $# -ge 2 ] || { usage >&2; exit 2; }
		case $1 in
		--seed) seed=$2 ;;
		--sample) sample=$2 ;;
		--file) file=$2 ;;
		esac
		shift
		;;
	-h | --help) usage; exit 0 ;;
	-*) usage >&2; exit 2 ;;
	*) only="$only $1 " ;;
	esac
	shift
done
case $seed:$sample in
*[!0-9:]* | :* | *: | *:0) usage >&2; exit 2 ;;
esac
if ! cargo mutants --version >/dev/null 2>&1; then
	echo "mutants: cargo-mutants is missing; install it with: cargo install cargo-mutants --locked" >&2
	exit 1
fi

cd "$(dirname "$0")/.."
work=$PWD/target/mutants
tree=$work/tree
# The files are changed in a copy. Their times are new, since cargo must not take what was built of a mutant for them.
rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null | tar -T - -c | tar -x -m -C "$tree"
# Property tests have fewer cases, and the same ones for each mutant: with 10,000 of them a mutant takes minutes.
find "$tree/crates" -path '*/tests/*.rs' -exec sed -i -E \
	"s/with_cases\([0-9_]+\)/with_cases($CASES)/; s/^const CASES: u32 = .*/const CASES: u32 = $CASES;/" {} +
export PROPTEST_CASES=$CASES PROPTEST_RNG_SEED=1 PROPTEST_MAX_SHRINK_ITERS=0 PROPTEST_DISABLE_FAILURE_PERSISTENCE=1
export CARGO_TARGET_DIR="$work/build"

count() {
	grep -c . "$work/$1/mutants.out/$2.txt" || true
}

echo "$CRATES" | while read -r name package options; do
	[ -n "$name" ] || continue
	case $only in "" | *" $name "*) ;; *) continue ;; esac
	set -f
	# shellcheck disable=SC2086 # a list of options, with patterns that are not for the shell
	set -- -d "$tree" -p "$package" $options
	total=$(cargo mutants "$@" --list | grep -c "^${file:-.}" || true)
	[ "$total" -gt 0 ] || continue
	if [ -n "$file" ]; then
		set -- -d "$tree" -p "$package" --file "$file"
	else
		shards=$(((total + sample / 2) / sample))
		[ "$shards" -gt 1 ] || shards=1
		set -- "$@" --sharding round-robin --shard "$((seed % shards))/$shards"
	fi
	rm -rf "${work:?}/$name"
	mkdir "$work/$name"
	code=0
	cargo mutants "$@" --in-place -o "$work/$name" --profile mutants --minimum-test-timeout 40 --timeout-multiplier 2 \
		-- --lib --tests \
		</dev/null >"$work/$name/log" 2>&1 || code=$?
	case $code in
	# All caught, some missed, some timed out.
	0 | 2 | 3) ;;
	*) tail -n 20 "$work/$name/log" >&2; exit "$code" ;;
	esac
	echo "$name: $(count "$name" caught) caught, $(count "$name" missed) missed, $(count "$name" timeout) timed out," \
		"$(count "$name" unviable) do not compile, of $total"
	sed 's/^/  missed: /' "$work/$name/mutants.out/missed.txt"
done
