#!/bin/sh
# Boots another Linux in a virtual machine and runs there what depends on the kernel: everything
# that loads BPF programs, whose verifiers differ.
#
# tests/kernel.sh [VERSION [CARGO-OPTION...]]
#
# VERSION is that of a Debian kernel package, 6.1 by default, the oldest that is supported; the
# options are for building, such as --release. Without the package, as on other distributions and
# processors, it says that it was skipped.
set -eu
cd "$(dirname "$0")/.."
version=${1-6.1}
[ $# -eq 0 ] || shift

# What runs, beside `midspan doctor`: a package, one of its test programs, and which of its tests, by
# libtest's filters: those that depend on what BPF does.
programs() {
    cat <<'TEXT'
midspan-steer --lib
midspan-ccload --test=kernel
midspan-ccload --test=marks
midspan-relay --test=e2e steer:: vlan:: accounts:: confirm::
TEXT
}

# What the tests call, and the modules that they, or the kernel for them, may ask for.
tools="nft ip ss curl"
modules="net lib crypto drivers/net"

# Seconds until the guest counts as hung. It is emulated (a virtual machine often has no KVM), and a
# tenth as fast.
patience=1500

main() {
    skip_without qemu-system-x86_64 busybox dpkg-deb apt-get
    cache=${CARGO_TARGET_DIR-target}/kernel/$version
    kernel=$cache/unpacked
    [ -e "$kernel/complete" ] || fetch_kernel
    release=$(basename "$kernel"/lib/modules/*)
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
    trap 'exit 1' INT TERM
    fill_root "$build/root" "$@"
    (cd "$build/root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$build/initrd"
    echo "kernel: booting Linux $release" >&2
    boot "$build/initrd" | tee "$build/console"
    grep -q '^kernel: all passed' "$build/console"
}

skip() {
    echo "kernel: skipped: $1" >&2
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
    echo "kernel: fetching $package" >&2
    # As root apt would want a user of its own to be able to write here.
    (cd "$cache" && apt-get -qq -o APT::Sandbox::User=root download "$package") ||
        skip "$package cannot be fetched"
    dpkg-deb -x "$cache"/*.deb "$kernel"
    touch "$kernel/complete"
}

# fill_root ROOT CARGO-OPTION...: the guest's files.
fill_root() {
    root=$1
    shift
    mkdir -p "$root"/bin "$root"/sbin "$root"/proc "$root"/sys "$root"/dev "$root"/tmp "$root"/tests
    add_program "$(command -v busybox)" "$root/bin/busybox"
    for tool in $tools; do
        add_program "$(command -v "$tool")" "$root/bin/$tool"
    done
    for part in $modules; do
        mkdir -p "$root/lib/modules/$release/kernel/$part"
        cp -r "$kernel/lib/modules/$release/kernel/$part/." "$root/lib/modules/$release/kernel/$part"
    done
    cp "$kernel/lib/modules/$release"/modules.builtin* "$kernel/lib/modules/$release/modules.order" \
        "$root/lib/modules/$release/"
    busybox depmod -b "$root" "$release"
    program=$(executable build -p midspan "$@")
    add_program "$program" "$root/bin/midspan"
    programs | while read -r package target filters; do
        name=$package-${target##*[-=]}
        program=$(executable test --no-run -p "$package" "$target" "$@")
        add_program "$program" "$root/tests/$name"
        echo "/tests/$name --test-threads=1 $filters" >>"$root/tests/list"
    done
    guest_init >"$root/init"
    chmod +x "$root/init"
}

# executable CARGO-COMMAND...: builds, and prints the path of the program.
executable() {
    cargo "$@" --locked --message-format=json >"$build/built" || return
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$build/built" | tail -n 1
}

# add_program FROM TO: with the libraries that it is linked to, and without what only debuggers read.
add_program() {
    strip -o "$2" "$1" 2>/dev/null || cp "$1" "$2"
    chmod +x "$2"
    ldd "$1" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p' |
        while read -r library; do
            mkdir -p "$root$(dirname "$library")"
            cp -n -L "$library" "$root$library"
        done
}

guest_init() {
    cat <<'TEXT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin RUST_BACKTRACE=1 MIDSPAN_TEST_NO_SKIP=1
mkdir -p /sbin
ln -s /bin/busybox /sbin/modprobe
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs tmp /tmp
modprobe tun
ip link set lo up
echo "kernel: $(uname -r) is up"
failed=0
midspan doctor >/tmp/doctor
grep -A1 -E 'steering by BPF|BPF with type' /tmp/doctor
grep -q '^ok *steering by BPF' /tmp/doctor || failed=1
while read -r command; do
    echo "kernel: $command"
    $command || failed=1
done </tests/list
[ $failed -eq 0 ] && echo "kernel: all passed on Linux $(uname -r)"
reboot -f
TEXT
}

boot() {
    timeout "$patience" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 1536 \
        -kernel "$kernel/boot/vmlinuz-$release" -initrd "$1" \
        -append "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on" \
        -display none -vga none -monitor none -serial stdio -nic none -no-reboot </dev/null |
        tr -d '\r'
}

main "$@"
