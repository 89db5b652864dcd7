#!/bin/sh
# pinctl without a daemon: its exit statuses, what its errors name, and that its man page and its
# help list the same options with the same defaults.
#
# usage: pinctl.sh PINCTL MANPAGE
set -u

pinctl=$1
page=$2
folder=$(mktemp -d "${TMPDIR:-/tmp}/pinctl-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
unset PINSERVE_SOCKET
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# expect STATUS TEXT ARGUMENTS...: runs pinctl; TEXT stands in what it writes, an error on one line
# of stderr and nothing on stdout.
expect() {
    status=$1
    text=$2
    shift 2
    "$pinctl" "$@" >"$folder/out" 2>"$folder/err"
    got=$?
    [ "$got" -eq "$status" ] || fail "pinctl $*: exit status $got, not $status"
    if [ "$status" -eq 0 ]; then
        grep -qF -- "$text" "$folder/out" || fail "pinctl $*: no '$text' in: $(cat "$folder/out")"
        [ ! -s "$folder/err" ] || fail "pinctl $*: wrote to stderr: $(cat "$folder/err")"
    else
        grep -qF -- "$text" "$folder/err" || fail "pinctl $*: no '$text' in: $(cat "$folder/err")"
        [ "$(wc -l <"$folder/err")" -eq 1 ] || fail "pinctl $*: more than a line on stderr"
        [ ! -s "$folder/out" ] || fail "pinctl $*: wrote to stdout: $(cat "$folder/out")"
    fi
}

none=$folder/none.sock
bench="bench --source synthetic:8 --batch 4 --device host"

expect 0 "pinctl " version
expect 0 '"version": "' --json version
expect 0 '"version": "' version --json
expect 0 "usage: pinctl" --help
expect 0 "Exit status: 0 done, 1 refused or failed, 2 usage, 3 no daemon." -h
expect 0 "--step-ms" bench --help

expect 2 "a command is missing"
expect 2 "unknown command frobnicate" frobnicate
expect 2 "the number of a JOB is missing" evict
expect 2 "unexpected argument host" drain host
expect 2 "unknown option --nope" --nope status
expect 2 "unknown option --nope" status --nope
expect 2 "unknown option --watch" jobs --watch
expect 2 "--socket needs a value" status --socket
expect 2 "unexpected argument more" pools more
expect 2 "bench needs --source" bench --batch 4
expect 2 "bench needs --batch" bench --source synthetic:8
expect 2 "batch" --socket "$none" bench --source synthetic:8 --batch 0
expect 2 "nonsense:8" --socket "$none" bench --source nonsense:8 --batch 4
expect 2 "--depth x" $bench --depth x
expect 2 "--epochs and --seconds exclude each other" $bench --epochs 1 --seconds 2
expect 2 "--seq is for a source of tokens" $bench --seq 128

for command in status devices pools jobs stats "stats --watch" "$bench" "evict 3" drain \
    "drain --undo"; do
    # shellcheck disable=SC2086 # the words of a command
    expect 3 "$none" --socket "$none" $command
    expect 3 "$none" --json --socket "$none" $command
done
# Something is there that nobody listens on.
: >"$folder/file.sock"
expect 3 "$folder/file.sock" --socket "$folder/file.sock" status
PINSERVE_SOCKET=$folder/env.sock
export PINSERVE_SOCKET
expect 3 "$folder/env.sock" status
expect 3 "$none" --socket "$none" status

if [ -w /dev/full ]; then
    "$pinctl" version >/dev/full 2>"$folder/err"
    [ $? -eq 1 ] || fail "pinctl version: a full disk is not told"
fi

# "--depth N  batches prefetched ahead (default 4)" of the help becomes "depth 4".
"$pinctl" bench --help |
    sed -n 's/^  --\([a-z-]*\) .*(default \(.*\))$/\1 \2/p' | sort >"$folder/help"
sed 's/\\-/-/g' "$page" | awk '
    /^\.SH BENCH/ { on = 1 }
    /^\.SS Result/ { on = 0 }
    on && /^\.B[IR]? "?--[a-z]/ && before == ".TP" { gsub(/"/, ""); sub(/^--/, "", $2); name = $2 }
    on && /\(default / { text = $0; sub(/.*\(default /, "", text); sub(/\).*/, "", text); print name, text }
    { before = $0 }' | sort >"$folder/page"
[ -s "$folder/help" ] || fail "no defaults in the help"
diff "$folder/help" "$folder/page" || fail "defaults of the help (<) and the man page (>) differ"

"$pinctl" bench --help | sed -n 's/^  --\([a-z-]*\) .*/\1/p' | sort >"$folder/help"
sed 's/\\-/-/g' "$page" | awk '
    /^\.SH BENCH/ { on = 1 }
    /^\.SS Result/ { on = 0 }
    on && /^\.BI? --[a-z]/ && before == ".TP" { sub(/^--/, "", $2); print $2 }
    { before = $0 }' | sort >"$folder/page"
diff "$folder/help" "$folder/page" || fail "options of the help (<) and the man page (>) differ"

exit $failed
