#!/bin/sh
# Coverage-guided fuzzing of everything that reads bytes from outside, by libFuzzer on a stable compiler, and of the
# C that the kernel runs, by clang with AddressSanitizer and UndefinedBehaviorSanitizer.
#
#   tests/fuzz.sh [SECONDS [TARGET...]]
#   tests/fuzz.sh keep TARGET...
#
# gives each target so many seconds (60), two at a time. What is found new goes to target/fuzz/corpus; an input that
# breaks a target is left in target/fuzz/found, and named. `keep` adds to the committed inputs (fuzz/corpus, see
# tests/corpus.py) those of target/fuzz/corpus that reach what they do not.
set -eu
cd "$(dirname "$0")/.."
seconds=${1-60}
[ $# -eq 0 ] || shift
if [ "$seconds" = keep ]; then
    [ $# -gt 0 ] || { echo "tests/fuzz.sh: which targets are to be kept of?" >&2; exit 2; }
    for target in "$@"; do
        all=target/fuzz/kept/$target
        rm -rf "$all"
        tests/corpus.py unpack "$target" "$all"
        before=$(ls "$all" | wc -l)
        target/fuzz/bin/"$target" -merge=1 "$all" "target/fuzz/corpus/$target" 2>/dev/null
        tests/corpus.py pack "$target" "$all"
        echo "$target: $before inputs, $(ls "$all" | wc -l) now"
    done
    exit
fi
case $seconds in
'' | *[!0-9]*) echo "tests/fuzz.sh: \`$seconds\` is no number of seconds" >&2; exit 2 ;;
esac

build=$PWD/target/fuzz
mkdir -p "$build/found" "$build/bin"

# The longest input that makes sense, by target; libFuzzer's own choice where nothing is said.
longest() {
    case $1 in
    syn) echo 512 ;;
    steer_packet | flow_record | proxy_header) echo 400 ;;
    super_packet | congestion_control) echo 2000 ;;
    record | scenario) echo 16384 ;;
    *) echo 4096 ;;
    esac
}

# What the repository has of that kind anyway.
seeds() {
    case $1 in
    scenario) echo scenarios ;;
    esac
}

# What `cargo fuzz` sets, but for the sanitizers of Rust, which take a nightly compiler: counters at each edge and
# what is compared with what.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
sanitize="-std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
    -Wall -Wno-unused -Wno-unknown-attributes"

# With a target named, build scripts and macros are built without.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS=$coverage cargo build --release --locked --quiet --manifest-path fuzz/Cargo.toml \
    --target "$host" --target-dir "$build"
# shellcheck disable=SC2086
{
    clang $sanitize -Ifuzz/c -Icrates/relay/steer/bpf -Icrates/tcp/cc/algo -Icrates/tcp/reordering/algo fuzz/c/steer_packet.c -o "$build/bin/steer_packet"
    clang $sanitize -Icrates/tcp/cc/algo -Icrates/tcp/cc/src fuzz/c/congestion_control.c \
        -o "$build/bin/congestion_control"
}
for source in fuzz/targets/*.rs; do
    name=$(basename "$source" .rs)
    cp "$build/$host/release/$name" "$build/bin/$name"
done
[ $# -gt 0 ] || set -- $(ls "$build/bin")

one() {
    target=$1
    [ -x "$build/bin/$target" ] || { echo "tests/fuzz.sh: no target \`$target\`" >&2; return 2; }
    mkdir -p "$build/corpus/$target"
    kept=$build/kept/$target
    rm -rf "$kept"
    tests/corpus.py unpack "$target" "$kept"
    log=$build/$target.log
    if "$build/bin/$target" -max_total_time="$seconds" -max_len="$(longest "$target")" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$build/found/$target-" \
        "$build/corpus/$target" "$kept" $(seeds "$target") >"$log" 2>&1; then
        sed -n "s/^#\([0-9]*\).*DONE *cov: \([0-9]*\).*/$target: \1 inputs, \2 edges/p" "$log"
    else
        tail -40 "$log" >&2
        echo "$target: FAILED, see $log" >&2
        return 1
    fi
}

failed=0
running=
for target in "$@"; do
    one "$target" &
    running="$running $!"
    set -- $running
    if [ $# -ge 2 ]; then
        wait "$1" || failed=1
        shift
        running=$*
    fi
done
for process in $running; do
    wait "$process" || failed=1
done
exit "$failed"
