#!/bin/sh
# Installs the Debian packages that are missing, and nothing else. With --build-only, only what is
# needed to build and to run, not what the tests need. For the tests, parts of three more packages
# are unpacked into build/guest, without installing them: the kernel of a guest machine, and the
# plugin with which hwloc lists its PCI devices.
set -eu

packages="build-essential cmake ninja-build pkg-config protobuf-c-compiler
 libarchive-dev libhwloc-dev libinih-dev libjpeg62-turbo-dev libprotobuf-c-dev libsmartcols-dev
 libspng-dev libsystemd-dev libuv1-dev libwebp-dev libxxhash-dev
 python3 python3-numpy python3-pil"
for_tests="clang-format clang-tidy libcmocka-dev mypy
 python3-pip python3-setuptools python3-torch python3-wheel systemd util-linux"
[ "$(uname -m)" != x86_64 ] || for_tests="$for_tests busybox-static qemu-system-x86"

case ${1-} in
'') packages="$packages $for_tests" ;;
--build-only) ;;
*)
    echo "usage: sh tests/setup.sh [--build-only]" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "setup.sh: this is not Debian. What is needed, by Debian's names:" $packages >&2
    exit 1
fi

as_root=
run_as_root() {
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "setup.sh: neither root nor sudo; as root: $*" >&2
            exit 1
        fi
        as_root=sudo
    fi
    $as_root env DEBIAN_FRONTEND=noninteractive "$@"
}

missing=
for package in $packages; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || state=
    [ "$state" = installed ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
    echo "setup.sh: installing$missing"
    run_as_root apt-get update -q
    run_as_root apt-get install -q -y --no-install-recommends $missing
fi

# unpack PACKAGE PATTERN NAME: one file of a package that is downloaded and not installed.
unpack() {
    (cd "$guest/download" && apt-get download -q -o APT::Sandbox::User=root "$1") &&
        dpkg-deb --fsys-tarfile "$guest/download/$1"_*.deb |
        tar -xO --wildcards "$2" >"$guest/download/file" &&
        [ -s "$guest/download/file" ] && mv "$guest/download/file" "$guest/$3"
}

# The kernel comes last: with it the parts are complete.
unpack_guest() {
    mkdir -p "$guest/download"
    apt-cache show linux-image-cloud-amd64 >/dev/null 2>&1 || run_as_root apt-get update -q
    kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
    unpack libhwloc-plugins '*/hwloc_pci.so' hwloc_pci.so &&
        unpack libpciaccess0 '*/libpciaccess.so.0.*' libpciaccess.so.0 &&
        unpack "$kernel" './boot/vmlinuz-*' vmlinuz
}

guest=$(dirname "$0")/../build/guest
if [ "${1-}" = --build-only ] || [ "$(uname -m)" != x86_64 ] || [ -e "$guest/vmlinuz" ]; then
    exit 0
fi
unpack_guest || echo "setup.sh: no kernel for guest machines: the test numa will be skipped" >&2
rm -rf "$guest/download"
