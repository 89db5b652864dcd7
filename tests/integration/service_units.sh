#!/bin/sh
# The units, as they are installed but with the program that was built, please systemd-analyze:
# service_units.sh PINSERVED SERVICE SOCKET SYSUSERS
set -eu

pinserved=$1 service=$2 socket=$3 sysusers=$4
command -v systemd-analyze >/dev/null || exit 77

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "FAILED: $*"
    exit 1
}

sed "s#^ExecStart=.*#ExecStart=$pinserved#" "$service" >"$dir/pinserved.service"
grep -qxF "ExecStart=$pinserved" "$dir/pinserved.service" || fail "no ExecStart in $service"
cp "$socket" "$dir/pinserved.socket"

# Warnings, such as unknown keys, do not change the exit status.
said=$(systemd-analyze verify --man=no "$dir/pinserved.service" "$dir/pinserved.socket" 2>&1) ||
    fail "verify: $said"
[ -z "$said" ] || fail "verify: $said"

# Tenths; 10 is a service without any sandbox.
systemd-analyze security --offline=yes --threshold=25 --no-pager "$dir/pinserved.service" >"$dir/out" 2>&1 ||
    fail "security: $(tail -n 3 "$dir/out")"

said=$(systemd-sysusers --dry-run "$sysusers" 2>&1) || fail "sysusers: $said"

for line in Type=notify User=pinserve LimitMEMLOCK=infinity CacheDirectory=pinserve \
    CacheDirectoryMode=0700 \
    'CapabilityBoundingSet=CAP_SETUID CAP_SETGID'; do
    grep -qxF "$line" "$dir/pinserved.service" || fail "$service lacks $line"
done
grep -qxF ListenSequentialPacket=/run/pinserve/pinserve.sock "$dir/pinserved.socket" ||
    fail "$socket has another path"
