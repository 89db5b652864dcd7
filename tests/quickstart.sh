#!/bin/sh
# From a fresh Debian 12 to figures: installs what is missing, builds, makes 2,000 photos, starts
# the daemon with its built-in defaults, feeds two epochs to pinctl bench, and shows what the daemon
# did. Leaves the build folder and the packages, nothing else.
#
#     sh tests/quickstart.sh [--photos DIR]     DIR holds class folders of JPEG or PNG files
set -eu
cd "$(dirname "$0")/.."

photos=
case ${1-} in
'') ;;
--photos)
    photos=$(cd "${2:?--photos wants a folder}" && pwd)
    ;;
*)
    echo "usage: sh tests/quickstart.sh [--photos DIR]" >&2
    exit 2
    ;;
esac

dir=
daemon=
finish() {
    status=$?
    trap - EXIT INT TERM HUP
    if [ -n "$daemon" ] && kill "$daemon" 2>/dev/null; then
        wait "$daemon" || true
    fi
    [ -z "$dir" ] || rm -rf "$dir"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
step() {
    printf '\n== %s\n' "$*"
}

step "packages"
sh tests/setup.sh --build-only

step "build"
build=build/quickstart
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPINSERVE_TESTS=OFF >/dev/null
cmake --build "$build"

dir=$(mktemp -d)
if [ -z "$photos" ]; then
    step "photos"
    photos=$dir/photos
    /usr/bin/python3 -B tests/make_photos.py "$photos"
fi

step "daemon"
socket=$dir/pinserve.sock
pinctl() {
    "$build/client/pinctl/pinctl" --socket "$socket" "$@"
}
# An empty configuration: what is installed on this machine does not count.
"$build/daemon/pinserved" --config /dev/null --socket "$socket" 2>"$dir/log" &
daemon=$!
tries=0
until pinctl status >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ] || ! kill -0 "$daemon" 2>/dev/null; then
        echo "pinserved did not start:"
        cat "$dir/log"
        exit 1
    fi
    sleep 0.1
done
cat "$dir/log"

step "two epochs: random crop to 224, flip 0.5, batches of 64"
if ! pinctl bench --source "folder:$photos" --image random-crop:224 --flip 0.5 --batch 64 \
    --epochs 2; then
    echo "The daemon's log:"
    cat "$dir/log"
    exit 1
fi

step "pools"
pinctl pools
step "devices"
pinctl devices

kill "$daemon"
if wait "$daemon"; then
    daemon=
else
    daemon=
    echo "pinserved did not end well:"
    cat "$dir/log"
    exit 1
fi
