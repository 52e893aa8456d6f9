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
. tests/guest.sh

# What runs, beside `midspan doctor`: a package, one of its test programs (kind and name), and which of its tests,
# by libtest's filters: those that depend on what BPF does.
programs() {
    cat <<'TEXT'
midspan-steer lib midspan_steer
midspan-ccload test kernel
midspan-relay test e2e steer:: vlan:: reordering:: accounts:: identity:: first_window:: confirm:: learned:: blind:: proof::a_relay proof::rules
midspan test assist_fallback
TEXT
}

# What the tests call.
tools="nft ip ss tc curl"

main() {
    prepare
    mkdir "$root/tests"
    for tool in $tools; do
        add_program "$(command -v "$tool")" "$root/bin/$tool"
    done
    build_program "$@"
    program=$(executable midspan bin midspan)
    add_program "$program" "$root/bin/midspan"
    # Where tests of the program itself look for it.
    mkdir -p "$root$(dirname "$program")"
    ln -s /bin/midspan "$root$program"
    # shellcheck disable=SC2046
    build_tests $(programs | awk '{ print $2 == "lib" ? "--lib" : "--test=" $3 }' | sort -u) "$@"
    programs | while read -r package kind target filters; do
        name=$package-$target
        program=$(executable "$package" "$kind" "$target")
        add_program "$program" "$root/tests/$name"
        echo "/tests/$name --test-threads=1 $filters" >>"$root/tests/list"
    done
    guest_init >"$root/init"
    chmod +x "$root/init"
    boot
    grep -q '^kernel: all passed' "$build/console"
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
chmod 1777 /tmp
modprobe tun
ip link set lo up
# Hooks of ingress and egress stay switched on: the kernel switches them in its own code (see boot in tests/guest.sh).
tc qdisc add dev lo clsact
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

main "$@"
