# shellcheck shell=sh
# What tests in a virtual machine with another Linux have in common. Sourced, with `version` set: that of a
# Debian kernel package. They are skipped, and say so, where it is not to be had.

# The modules that tests, or the kernel for them, may ask for.
modules="net lib crypto drivers/net"

# Seconds until the guest counts as hung. It is emulated (a virtual machine often has no KVM), and a
# tenth as fast.
patience=2700

# A kernel that goes round in a circle for two minutes says where, on all processors, and ends: otherwise all
# that is known of it is that patience ran out.
lockup="watchdog_thresh=60 softlockup_panic=1 softlockup_all_cpu_backtrace=1"

# prepare: the kernel, an empty root for the guest, and a folder that goes when the script ends.
prepare() {
    skip_without qemu-system-x86_64 busybox dpkg-deb apt-get python3
    cache=${CARGO_TARGET_DIR-target}/kernel/$version
    kernel=$cache/unpacked
    [ -e "$kernel/complete" ] || fetch_kernel
    release=$(basename "$kernel"/lib/modules/*)
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
    trap 'exit 1' INT TERM
    root=$build/root
    mkdir -p "$root"/bin "$root"/sbin "$root"/proc "$root"/sys "$root"/dev "$root"/tmp
    add_program "$(command -v busybox)" "$root/bin/busybox"
    for part in $modules; do
        mkdir -p "$root/lib/modules/$release/kernel/$part"
        cp -r "$kernel/lib/modules/$release/kernel/$part/." "$root/lib/modules/$release/kernel/$part"
    done
    cp "$kernel/lib/modules/$release"/modules.builtin* "$kernel/lib/modules/$release/modules.order" \
        "$root/lib/modules/$release/"
    busybox depmod -b "$root" "$release"
}

skip() {
    echo "${0##*/}: skipped: $1" >&2
    exit 0
}

skip_without() {
    for program in "$@"; do
        command -v "$program" >/dev/null || skip "no $program"
    done
    [ "$(uname -m)" = x86_64 ] || skip "not an x86_64"
}

fetch_kernel() {
    package=$(apt-cache pkgnames "linux-image-$version." | grep -E '[0-9]-cloud-amd64$' |
        sort -V | tail -n 1)
    [ -n "$package" ] || skip "no kernel package of Linux $version is to be had"
    rm -rf "$cache"
    mkdir -p "$cache"
    echo "fetching $package" >&2
    # As root apt would want a user of its own to be able to write here.
    (cd "$cache" && apt-get -qq -o APT::Sandbox::User=root download "$package") ||
        skip "$package cannot be fetched"
    dpkg-deb -x "$cache"/*.deb "$kernel"
    touch "$kernel/complete"
}

# build_program CARGO-OPTION... and build_tests CARGO-OPTION...: what the guest is to run. Of the whole workspace, so that
# what `./run test` has built serves: for one package alone, dependencies have other features, and are built anew.
build_program() {
    cargo build --locked --workspace --bin midspan --message-format=json "$@" >"$build/built"
}

build_tests() {
    cargo test --no-run --locked --workspace --message-format=json "$@" >"$build/built"
}

# executable PACKAGE KIND NAME: where that program is, of those last built: a `bin`, a `test`, or the tests of a `lib`.
executable() {
    python3 - "$@" "$build/built" <<'PYTHON'
import json, sys

package, kind, name, built = sys.argv[1:]
for line in open(built):
    said = json.loads(line)
    target, program = said.get("target", {}), said.get("executable")
    # An identity ends in `#0.1.0` where folder and package have one name, else in `#package@0.1.0`.
    folder, _, tail = said.get("package_id", "").rpartition("#")
    of = tail.partition("@")[0] if "@" in tail else folder.rpartition("/")[2]
    if program and (of, target.get("name")) == (package, name) and kind in target["kind"]:
        if kind != "bin" or not said["profile"]["test"]:
            print(program)
            break
else:
    sys.exit(f"{package}: no {kind} {name} was built")
PYTHON
}

# add_program FROM TO: with the libraries that it is linked to, and without what only debuggers read.
add_program() {
    mkdir -p "$(dirname "$2")"
    strip -o "$2" "$1" 2>/dev/null || cp "$1" "$2"
    chmod +x "$2"
    ldd "$1" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p' |
        while read -r library; do
            mkdir -p "$root$(dirname "$library")"
            cp -n -L "$library" "$root$library"
        done
}

# boot: what the guest says, until it ends; also into the file $build/console. An emulator of several processors can run
# an instruction on that a processor has since replaced: the kernel replaces some in its own code, as when the first
# qdisc of ingress appears, and processors that run the old one do so for ever. That is no fault of what is tested: the
# guest is booted once more, and only once.
boot() {
    (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$build/initrd"
    run_guest
    if grep -q 'Kernel panic - not syncing: softlockup' "$build/console"; then
        echo "the guest's processors went round in circles: once more" >&2
        run_guest
    fi
}

run_guest() {
    echo "booting Linux $release" >&2
    timeout "$patience" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 1536 \
        -kernel "$kernel/boot/vmlinuz-$release" -initrd "$build/initrd" \
        -append "console=ttyS0 quiet loglevel=5 panic=-1 mitigations=off random.trust_cpu=on $lockup" \
        -display none -vga none -monitor none -serial stdio -nic none -no-reboot </dev/null |
        sed -u 's/\r//g' | tee "$build/console"
}
