#!/bin/sh
# gpu.sh BIN PHOTOS [SECTION...]
# Checks and measures the CUDA side on a machine with a GPU. BIN is a folder with all programs
# (pinserved, pinserved-device, pinctl, consume, ring, transform, test-device, contract-importer,
# bench_decode, bench_link, bench_transform, libpinclient.so.0); PHOTOS has class folders of JPEG
# files. Sections, all by default: contract transform path python same rates gather article. What it
# prints is recorded in RESULTS.md; logs go to $LOGS (/tmp).
set -u
[ $# -ge 2 ] || { echo "usage: gpu.sh BIN PHOTOS [SECTION...]" >&2; exit 2; }
bin=$(cd "$1" && pwd)
photos=$(cd "$2" && pwd)
shift 2
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
logs=${LOGS:-/tmp}
status=0
export PINSERVE_BIN="$bin" PINSERVE_GPU=1 PINCLIENT_LIBRARY="$bin/libpinclient.so.0"

# Output of a test, without what its daemons tell of themselves.
run_test() {
  echo "== $1"
  "$python" -B "$here/../$1.py" >"$logs/gpu-$(basename "$1").log" 2>&1 || status=1
  grep -vE ' info: ' "$logs/gpu-$(basename "$1").log" | cut -c1-300
}

section_contract() {
  "$bin/test-device" cuda "$bin/pinserved-device" "$bin/contract-importer" >"$logs/contract.log" \
    2>&1 || status=1
  grep -E 'FAILED|PASSED|SKIPPED|importer' "$logs/contract.log"
}

section_transform() {
  "$bin/bench_transform" || status=1
  run_test integration/transform
}

section_path() {
  for test in on_cuda operate reconnect gather checksums life; do run_test "integration/$test"; done
}

section_python() {
  run_test python/gpu
}

# The same bytes on every rung and on the host device, on the GPU's own driver.
section_same() {
  folder=$(mktemp -d)
  "$bin/pinserved" --socket "$folder/s" >"$folder/log" 2>&1 &
  daemon=$!
  while ! "$bin/pinctl" --socket "$folder/s" status >/dev/null 2>&1; do sleep 0.1; done
  for source in synthetic:3x64x64:u8:5000 synthetic:64x33:f32:5000 "folder:$photos"; do
    image=none flip=0
    case $source in folder:*) image=random-crop:224 flip=0.5 ;; esac
    for at in cuda:0/fd cuda:0/ipc cuda:0/copy cuda:0/mapped cuda:0/host host/auto; do
      printf '%-28s %-14s ' "${source%%:/*}" "$at"
      "$bin/pinctl" --socket "$folder/s" --json bench --source "$source" --image $image \
        --flip $flip --batch 64 --last partial --device "${at%/*}" --deliver "${at#*/}" \
        --epochs 2 --checksum | grep checksum || status=1
    done
  done
  "$bin/pinctl" --socket "$folder/s" devices
  "$bin/pinctl" --socket "$folder/s" pools
  kill $daemon
  wait $daemon || status=1
  rm -rf "$folder"
}

section_rates() {
  "$python" -B "$here/gpu_rates.py" "$photos" || status=1
}

section_gather() {
  "$python" -B "$here/gpu_gather.py" || status=1
}

section_article() {
  PATH="$bin:$PATH" PYTHONPATH="$here/../../client/python" "$python" -B "$here/article.py" \
    --seconds "${SECONDS_EACH:-6}" || status=1
}

nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv,noheader
for section in ${*:-contract transform path python same rates gather article}; do
  printf '\n==== %s\n' "$section"
  "section_$section"
done
nvidia-smi --query-gpu=memory.used --format=csv,noheader
exit $status
