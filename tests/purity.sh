#!/bin/sh
# The pure crates decide; they read no clock, do no I/O and hold no unsafe code. This proves it:
# by what they depend on, and by a search of their sources. Only `cc` and `reordering` have a module `ffi.rs`, in
# which they call their own C.
set -eu
cd "$(dirname "$0")/.."

# As the map of ARCHITECTURE.md has them.
pure=$(awk '/^  [a-z]+\/ / { group = $1 } $2 == "pure" { print group $1 }' ARCHITECTURE.md)
[ "$(echo "$pure" | wc -l)" -gt 10 ] || { echo "ARCHITECTURE.md has no map of the pure crates" >&2; exit 1; }
failed=0

for crate in $pure; do
    package=$(sed -n 's/^name = "\(.*\)"/\1/p' "crates/$crate/Cargo.toml" | head -1)
    tree=$(cargo tree --locked --package "$package" --edges normal --prefix none)
    for banned in tokio mio rustix socket2 nix libbpf-rs midspan-sys midspan-steer midspan-emu midspan-relay \
        midspan-lab; do
        if printf '%s\n' "$tree" | grep -q "^$banned v"; then
            echo "crates/$crate is pure but depends on $banned" >&2
            failed=1
        fi
    done
    if printf '%s\n' "$tree" | sed 1d | grep -q '^libc v'; then
        echo "crates/$crate is pure but depends on libc" >&2
        failed=1
    fi
    except=
    case $crate in */cc | */reordering) except=--exclude=ffi.rs ;; esac
    # shellcheck disable=SC2086
    if grep -rnE 'Instant::now|SystemTime::now|std::(fs|net|process|thread|env)|unsafe ' \
        --include='*.rs' $except "crates/$crate/src"; then
        echo "crates/$crate is pure but does the above" >&2
        failed=1
    fi
done
[ "$failed" -eq 0 ] && echo "the pure crates are pure:" $pure
exit "$failed"
