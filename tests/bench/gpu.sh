#!/bin/sh
# gpu.sh BIN [PHOTOS]
# Checks and measures the CUDA side on a machine with a GPU. BIN is a folder with all programs
# (pinserved, pinserved-device, pinctl, consume, ring, transform, bench_transform, test-device,
# contract-importer); PHOTOS has class folders of JPEG files. What it prints is recorded in RESULTS.md.
set -u
[ $# -ge 1 ] || { echo "usage: gpu.sh BIN [PHOTOS]" >&2; exit 2; }
bin=$(cd "$1" && pwd)
photos=${2:+$(cd "$2" && pwd)}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
status=0
export PINSERVE_BIN="$bin" PINSERVE_GPU=1

nvidia-smi --query-gpu=name,uuid,driver_version,memory.used --format=csv,noheader
nproc

echo "== the contract of device.h on this driver"
"$bin/test-device" cuda "$bin/pinserved-device" "$bin/contract-importer" 2>&1 | tail -25 || status=1

echo "== the transform's kernels: every value, then their share of a copy's bandwidth"
"$bin/bench_transform" || status=1

for test in cuda gather transform checksums life; do
  echo "== $test"
  "$python" -B "$here/../integration/$test.py" >"/tmp/gpu-$test.log" 2>&1 || status=1
  grep -vE ' info: ' "/tmp/gpu-$test.log" | cut -c1-400
done

if [ -e "$bin/libpinclient.so.0" ] && "$python" -c 'import torch' 2>/dev/null; then
  echo "== the Python package"
  "$python" -B "$here/../python/gpu.py" >/tmp/gpu-python.log 2>&1 || status=1
  grep -vE ' info: ' /tmp/gpu-python.log | cut -c1-400
fi

echo "== checksums and rates, each delivery, 2 epochs"
folder=$(mktemp -d)
socket=$folder/s
"$bin/pinserved" --socket "$socket" >"$folder/log" 2>&1 &
daemon=$!
trap 'kill $daemon 2>/dev/null; wait $daemon; rm -rf "$folder"' EXIT
while ! "$bin/pinctl" --socket "$socket" status >/dev/null 2>&1; do sleep 0.1; done
bench() {
  name=$1
  shift
  "$bin/pinctl" --socket "$socket" --json bench "$@" >"$folder/out" || status=1
  "$python" - "$name" "$folder/out" <<'P'
import json, sys
try:
    r = json.load(open(sys.argv[2]))
except ValueError:
    sys.exit(f"{sys.argv[1]}: no result")
w, s = r["wait_us"], r["stages_us"]
print(f'{sys.argv[1]:34} {r["delivery"]:5} {r["samples_per_s"]:11.1f}/s {r["gb_per_s"]:7.3f} GB/s '
      f'first {r["first_batch_ms"]:7.1f} ms wait p50 {w["p50"]:9.1f} p99 {w["p99"]:9.1f} us '
      f'decode {s["decode"]:7.1f} copy {s["copy"]:8.1f} us {r.get("checksum") or ""}')
P
}
for deliver in fd ipc copy mapped host; do
  for source in "synthetic:3x64x64:u8:5000" "synthetic:64x33:f32:5000"; do
    bench "$source" --source "$source" --batch 64 --last partial --deliver "$deliver" \
      --epochs 2 --checksum
  done
  [ -z "$photos" ] || bench "photos" --source "folder:$photos" --image random-crop:224 --flip 0.5 \
    --batch 32 --last pad --deliver "$deliver" --epochs 2 --checksum
done
for source in "synthetic:3x64x64:u8:5000" "synthetic:64x33:f32:5000"; do
  bench "$source" --source "$source" --batch 64 --last partial --device host --epochs 2 --checksum
done
[ -z "$photos" ] || bench "photos" --source "folder:$photos" --image random-crop:224 --flip 0.5 \
  --batch 32 --last pad --device host --epochs 2 --checksum
for deliver in fd ipc copy mapped host; do
  bench "wait, a batch every 5 ms" --source synthetic:3x224x224:u8 --batch 16 --step-ms 5 \
    --deliver "$deliver" --seconds 4
  bench "small batches, depth 16" --source synthetic:1024:u8 --batch 4 --depth 16 \
    --deliver "$deliver" --seconds 4
  bench "large batches, depth 8" --source synthetic:3x224x224:u8 --batch 256 --depth 8 \
    --deliver "$deliver" --seconds 6
  [ -z "$photos" ] || bench "photos, random-crop:224" --source "folder:$photos" \
    --image random-crop:224 --flip 0.5 --batch 128 --deliver "$deliver" --seconds 6
done
echo "== records gathered from the page cache"
"$python" -B "$here/gpu_gather.py" || status=1
"$bin/pinctl" --socket "$socket" devices
"$bin/pinctl" --socket "$socket" pools
grep -E "warning|error" "$folder/log" | head -5
nvidia-smi --query-gpu=memory.used --format=csv,noheader
exit $status
