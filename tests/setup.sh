#!/bin/sh
# Installs the Debian packages that are missing, and nothing else. With --build-only, only what is
# needed to build and to run, not what the tests need.
set -eu

packages="build-essential cmake ninja-build pkg-config protobuf-c-compiler
 libarchive-dev libhwloc-dev libinih-dev libjpeg62-turbo-dev libprotobuf-c-dev libsmartcols-dev
 libspng-dev libsystemd-dev libuv1-dev libxxhash-dev
 python3 python3-numpy python3-pil"
for_tests="clang-format clang-tidy libcmocka-dev systemd util-linux"

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

missing=
for package in $packages; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || state=
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "setup.sh: installing$missing"
as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup.sh: neither root nor sudo; as root: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi
$as_root apt-get update -q
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
