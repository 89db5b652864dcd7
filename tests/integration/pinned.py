"""Checksums of whole epochs, pinned: no change may alter what a job gets unnoticed.

A value here that becomes another is no mistake of this test. Either the change that did it is wrong,
or it is meant to alter data: then the constant whose meaning has changed gets its next number, so
that no resume token and no job of the older version is taken for one of the newer (ORDER_VERSION in
daemon/core/order.h for which samples come when; PIPELINE_VERSION in daemon/decode/decode.h for crops
and pixels; RANDOM_VERSION in daemon/source/tokens.c for where random windows begin), and

    PINSERVE_BUILD=build/release python3 -B tests/integration/pinned.py --update

prints the table as it is now. A new source or pipeline is one more line, with "" in front.
"""

import sys

import pinned_data
from daemon import Daemon, Failed, expect_equal, folder, run

EPOCHS = 2

# XXH64 of two epochs, name, options of pinctl bench: $ is the folder of the data, and
CROP = "--image random-crop:16 --flip 0.5 --batch 5"
PINNED = [
    # Order and shards.
    ("7936475cc3388418", "full",
     "synthetic:5:u8:100 --batch 8"),
    ("80bfe0b8d1ff64d2", "seed",
     "synthetic:5:u8:100 --batch 8 --seed 12345678901234567890"),
    ("a231532c57d4bac2", "none",
     "synthetic:5:u8:100 --batch 8 --shuffle none"),
    ("f0687be410ebf30f", "pad",
     "synthetic:5:u8:100 --batch 8 --last pad"),
    ("1db4f81aed4201b4", "partial",
     "synthetic:5:u8:100 --batch 8 --last partial"),
    ("a8e0d20a56c700f9", "rank",
     "synthetic:5:u8:100 --batch 8 --last pad --world 2 --rank 1"),
    ("6e6e06fbf79674d5", "rank, none",
     "synthetic:5:u8:100 --batch 7 --shuffle none --world 3 --rank 2"),
    ("40ed25fd2104e959", "many samples",
     "synthetic:2:u8:1000003 --batch 4096 --batches 3"),
    # Sources without images.
    ("965bce8e8154c94e", "f32",
     "synthetic:3x4:f32:50 --batch 8 --last pad"),
    ("3f5140f85f3879a9", "records",
     "records:$/plain.npy,labels=$/labels.npy --batch 4"),
    ("2b6dcc9211901483", "large records",
     "records:$/large.npy --batch 2 --last partial"),
    ("7a32c96a88855c4f", "big-endian",
     "records:$/swapped.npy --batch 4 --last pad"),
    ("1bff34d9aca17991", "fortran",
     "records:$/fortran.npy --batch 4 --shuffle none"),
    ("01c227edc715767b", "raw",
     "records:$/raw.bin:3x5:bf16 --batch 4"),
    ("4e81e1b49eb864bb", "tokens",
     "tokens:$/t{0..2}.bin --seq 32 --batch 3"),
    ("1945402537b87ca4", "stride",
     "tokens:$/t?.bin,stride=10,out=i64 --seq 32 --batch 3"),
    ("6226112f40a6f2e6", "random",
     "tokens:$/t?.bin,stride=random --seq 32 --batch 3"),
    ("c60fc02f23725913", "u32",
     "tokens:$/wide.bin:u32,offset=8 --seq 32 --batch 3"),
    ("8fcb3254659e472d", "llm.c",
     "tokens:$/llmc.bin --seq 32 --batch 3"),
    ("8d2701c7f8b7fa25", "megatron",
     "tokens:$/mega.bin --seq 16 --batch 3"),
    ("dcf46db7d8fc1a15", "documents",
     "tokens:$/mega.bin,documents=within,position,document --seq 16 --batch 3"),
    ("0ab356afb999ace7", "blend",
     "tokens:blend=0.7:$/t0.bin,0.2:$/llmc.bin,0.1:$/t2.bin --seq 16 --batch 3"),
    ("fcc6c1ba7e993eac", "blend, random",
     "tokens:blend=0.7:$/t0.bin,0.3:$/mega.idx,stride=random --seq 16 --batch 3"),
    # Images: sources, then pipelines.
    ("2f32d2dca2538d39", "folder",
     "folder:$/images CROP"),
    ("a3b6acfd200d81b5", "list",
     "folder:$/images,list=$/images.txt CROP --last pad"),
    ("83b4d2bfef014fe0", "tar",
     "tar:$/s-{0..2}.tar CROP"),
    ("8492461abc27abaa", "fields",
     "tar:$/s-?.tar,fields=png+cls+json:16+npy CROP"),
    ("7591875d95c1dc9a", "fields alone",
     "tar:$/s-?.tar,fields=npy+json:16 --batch 5"),
    ("1d881b11c66985d4", "larger crop",
     "folder:$/images --image random-crop:40 --batch 5"),
    ("9e9ebabe0ee73286", "bicubic",
     "folder:$/images --image random-crop:16,filter=bicubic --flip 0.5 --batch 5"),
    ("a0b80a144b2ab4af", "upright",
     "folder:$/images --image random-crop:16,orient=exif --flip 0.5 --batch 5"),
    ("95da20251a16a1ec", "center",
     "folder:$/images --image center-crop:16:20 --batch 5 --last partial"),
    ("d1c367cd9c1764f2", "center, flip",
     "folder:$/images --image center-crop:16:20 --flip 1 --batch 5"),
    ("3d63ef71b7e4a70e", "center, larger",
     "folder:$/images --image center-crop:60:70 --batch 5"),
    ("9afd46ca5bc408d8", "center, bicubic",
     "folder:$/images --image center-crop:16:20,filter=bicubic --batch 5"),
    ("b317b258d0fb75e8", "center, upright",
     "folder:$/images --image center-crop:16:20,orient=exif --batch 5"),
    # Bad samples.
    ("f388c751aea2c2a0", "substitute",
     "folder:$/bad CROP --bad substitute --last pad"),
    ("1c1d255dc1667d91", "blank",
     "folder:$/bad CROP --bad blank --last pad --world 2 --rank 1"),
]


def checksum(daemon, path, options):
    words = options.replace("$", path).replace("CROP", CROP).split()
    if "--batches" not in words:
        words += ["--epochs", str(EPOCHS)]
    return daemon.bench("--source", *words, "--device", "host", "--checksum")["checksum"]


def found():
    """name -> checksum, as it is now."""
    with folder() as path, Daemon() as daemon:
        pinned_data.make(path)
        return {name: checksum(daemon, path, options) for _, name, options in PINNED}


def test_checksums():
    now = found()
    wrong = [f"{name}: {now[name]}, not {wanted}"
             for wanted, name, _ in PINNED if now[name] != wanted]
    if wrong:
        raise Failed("; ".join(wrong))
    expect_equal(len(set(now.values())), len(PINNED), "different specs, different checksums")


def update():
    now = found()
    for _, name, options in PINNED:
        print(f'    ("{now[name]}", "{name}",\n     "{options}"),')


if "--update" in sys.argv:
    update()
else:
    run([test_checksums])
