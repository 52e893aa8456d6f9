#!/bin/sh
# The pure crates decide; they read no clock, do no I/O and hold no unsafe code. This proves it by what they depend on,
# and that clippy has been told what they may not call (tests/purity.toml); clippy itself runs with `./run lint`. Only
# `cc` and `reordering` have a module `ffi.rs`, in which they call their own C.
set -eu
cd "$(dirname "$0")/.."

# As the map of ARCHITECTURE.md has them.
pure=$(awk '/^  [a-z]+\/ / { group = $1 } $2 == "pure" { print group $1 }' ARCHITECTURE.md)
[ "$(echo "$pure" | wc -l)" -gt 10 ] || { echo "ARCHITECTURE.md has no map of the pure crates" >&2; exit 1; }
failed=0

# fail CRATE WHAT
fail() {
    echo "crates/$1 is pure but $2" >&2
    failed=1
}

for crate in $pure; do
    package=$(sed -n 's/^name = "\(.*\)"/\1/p' "crates/$crate/Cargo.toml" | head -1)
    tree=$(cargo tree --locked --package "$package" --edges normal --prefix none)
    for banned in tokio mio rustix socket2 nix libbpf-rs midspan-sys midspan-steer midspan-emu midspan-relay \
        midspan-lab; do
        if printf '%s\n' "$tree" | grep -q "^$banned v"; then
            fail "$crate" "depends on $banned"
        fi
    done
    if printf '%s\n' "$tree" | sed 1d | grep -q '^libc v'; then
        fail "$crate" "depends on libc"
    fi
    [ "crates/$crate/clippy.toml" -ef tests/purity.toml ] ||
        fail "$crate" "its clippy.toml is no link to tests/purity.toml: ln -s ../../../tests/purity.toml"
    # The workspace's lints forbid unsafe code; who has lints of its own may allow it in `ffi.rs`.
    grep -A1 '^\[lints\]' "crates/$crate/Cargo.toml" | grep -q '^workspace = true' ||
        grep -q '^unsafe_code = "deny"' "crates/$crate/Cargo.toml" || fail "$crate" "allows unsafe code"
    for allowed in $(grep -rlE '(allow|expect|warn)\(([^)]*[^a-z_])?unsafe_code' --include='*.rs' "crates/$crate/src"); do
        [ "${allowed##*/}" = ffi.rs ] || fail "$crate" "allows unsafe code in $allowed"
    done
    for allowed in $(grep -rlE '(allow|expect|warn)\([^)]*clippy::(disallowed_|style|all)' --include='*.rs' "crates/$crate/src"); do
        fail "$crate" "allows in $allowed what tests/purity.toml does not"
    done
done
[ "$failed" -eq 0 ] && echo "the pure crates are pure:" $pure
exit "$failed"
