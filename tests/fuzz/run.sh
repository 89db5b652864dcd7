#!/bin/sh
# Runs fuzz targets for so many CPU-seconds each, as many at a time as there are CPUs.
#
# usage: run.sh SECONDS [TARGET...]
#
#   PINSERVE_BUILD     a build with -DPINSERVE_FUZZ=ON, or any folder with fuzz-TARGET programs in it
#                      (build/fuzz); without TARGET every one of them is run
#   PINSERVE_CORPUS    a folder of corpora, one a target (the corpus folder beside this file)
#   PINSERVE_FUZZ_OUT  where inputs that fail and logs are left (a new folder in $TMPDIR)
#   JOBS               targets at a time
#
# Corpora grow in a copy. One line a target: runs, CPU-seconds, features covered, inputs in its
# corpus by then, findings. The exit status is 1 when there is any finding, or a target did not run.
# This file, the programs and the corpora are all it needs: they may be taken to another machine.
set -u
here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
'' | *[!0-9]*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
seconds=$1
shift
programs=${PINSERVE_BUILD:-$here/../../build/fuzz}
[ ! -d "$programs/tests/fuzz" ] || programs=$programs/tests/fuzz
corpora=${PINSERVE_CORPUS:-$here/corpus}
out=${PINSERVE_FUZZ_OUT:-$(mktemp -d "${TMPDIR:-/tmp}/pinserve-fuzz-XXXXXX")}
jobs=${JOBS:-$(nproc)}

if [ $# -eq 0 ]; then
    for program in "$programs"/fuzz-*; do
        [ -f "$program" ] && [ -x "$program" ] && set -- "$@" "${program##*/fuzz-}"
    done
fi
if [ $# -eq 0 ]; then
    echo "run.sh: there are no fuzz-TARGET programs in $programs" >&2
    exit 1
fi

# A target's inputs need not be longer than this to reach all of it.
longest() {
    case $1 in
    image) echo 16384 ;;
    tar*) echo 20480 ;;
    *) echo 4096 ;;
    esac
}

# To $used: CPU-seconds of what was waited for here.
take_time() {
    times >"$folder/times"
    used=$(tail -n 1 "$folder/times" | tr 'ms' '  ' | awk '{ printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }')
}

# Again and again until the CPU time is used up: beside others it takes longer than that.
run_target() {
    folder=$out/$1
    used=0
    status=0
    rm -rf "$folder"
    mkdir -p "$folder/corpus" "$folder/findings"
    cp "$corpora/$1"/* "$folder/corpus/"
    while [ "$status" -eq 0 ] && [ "$used" -lt "$seconds" ]; do
        "$programs/fuzz-$1" -max_total_time=$((seconds - used)) -max_len="$(longest "$1")" \
            -timeout=120 -rss_limit_mb=2048 -malloc_limit_mb=1024 -print_final_stats=1 \
            -artifact_prefix="$folder/findings/" "$folder/corpus" >>"$folder/log" 2>&1
        status=$?
        take_time
    done
    runs=$(awk '/^stat::number_of_executed_units/ { n += $2 } END { print n + 0 }' "$folder/log")
    features=$(sed -n 's/.* ft: \([0-9]*\) .*/\1/p' "$folder/log" | tail -n 1)
    inputs=$(ls "$folder/corpus" | wc -l)
    findings=$(ls "$folder/findings" | wc -l)
    printf '%-10s %10d runs %5d s %6d features %5d inputs %2d findings%s\n' "$1" "$runs" "$used" \
        "${features:-0}" "$inputs" "$findings" "$([ "$status" -eq 0 ] || echo ", see $folder/log")"
    return "$status"
}

if [ $# -eq 1 ]; then
    run_target "$1"
    exit
fi
echo "$seconds CPU-seconds each, $jobs at a time; findings and logs in $out"
printf '%s\n' "$@" | PINSERVE_FUZZ_OUT=$out xargs -P "$jobs" -n 1 sh "$0" "$seconds" || exit 1
