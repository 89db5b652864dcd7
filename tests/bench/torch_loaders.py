#!/usr/bin/env python3
"""The same work done by PyTorch's DataLoader, for ratios within one run. One JSON line a case.

    torch_loaders.py CASE [--photos DIR] [--tokens FILE] [--records FILE] [--workers N]
                     [--seconds S]

Cases
  images-pil  class folders of photos through Pillow: RandomResizedCrop(224), flip, ToTensor,
              Normalize; float32 on the GPU, batch 256
  images-u8   torchvision's decode_jpeg, RandomResizedCrop(224), flip; uint8 on the GPU, batch 256
  tokens      a memory map of uint16, windows of 1,025 at random offsets, batch 64, int64 on the GPU
  records     a memory map of uint8 [N, 3, 224, 224], batch 256
  train       ResNet-50, bf16, batch 64 on data that lies on the GPU: training steps a second
  matmul      a loop of bf16 matrix products, which holds the GPU at its power limit: loops a second
"""

import argparse
import glob
import json
import os
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, folder, pil, repeat=60000):
        import torchvision.transforms as v1
        import torchvision.transforms.v2 as v2

        classes = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())
        files = [(path, label) for label, name in enumerate(classes)
                 for path in sorted(glob.glob(name + "/*"))]
        self.files = files * max(1, repeat // len(files))
        self.pil = pil
        if pil:
            self.transform = v1.Compose([
                v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ToTensor(),
                v1.Normalize([.485, .456, .406], [.229, .224, .225])])
        else:
            self.transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True),
                                         v2.RandomHorizontalFlip()])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        path, label = self.files[i]
        if self.pil:
            from PIL import Image
            image = Image.open(path).convert("RGB")
        else:
            from torchvision.io import ImageReadMode, decode_jpeg, read_file
            image = decode_jpeg(read_file(path), mode=ImageReadMode.RGB)
        return self.transform(image), label


class Tokens(Dataset):
    def __init__(self, path, seq=1024):
        self.tokens, self.seq = numpy.memmap(path, numpy.uint16, "r"), seq

    def __len__(self):
        return 1 << 22

    def __getitem__(self, i):
        at = (i * 1000003) % (len(self.tokens) - self.seq - 1)
        return torch.from_numpy(self.tokens[at:at + self.seq + 1].astype(numpy.int64))


class Records(Dataset):
    def __init__(self, path):
        self.records = numpy.load(path, mmap_mode="r")

    def __len__(self):
        return len(self.records) * 8

    def __getitem__(self, i):
        return torch.from_numpy(numpy.array(self.records[i % len(self.records)])), i


def feed(dataset, batch, workers, seconds):
    """Samples a second that arrive on the GPU, from the first batch on; seconds to that one."""
    loader = DataLoader(dataset, batch, shuffle=True, num_workers=workers, pin_memory=True,
                        prefetch_factor=4, drop_last=True)
    began = time.perf_counter()
    start, samples = None, 0
    for tensors in loader:
        tensors = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        moved = [tensor.cuda(non_blocking=True) for tensor in tensors]
        if start is None:
            torch.cuda.synchronize()
            start = time.perf_counter()
            continue
        samples += len(moved[0])
        if time.perf_counter() - start > seconds:
            break
    torch.cuda.synchronize()
    return samples / (time.perf_counter() - start), start - began


def train_step():
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device="cuda")
    torch.backends.cudnn.benchmark = True

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def matmul_step():
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    c = torch.empty_like(a)

    def step():
        for _ in range(20):
            torch.matmul(a, b, out=c)

    return step


def repeat(step, seconds):
    for _ in range(60):
        step()
    torch.cuda.synchronize()
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(20):
            step()
        torch.cuda.synchronize()
        steps += 20
    return steps / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case")
    parser.add_argument("--photos")
    parser.add_argument("--tokens")
    parser.add_argument("--records")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=6)
    options = parser.parse_args()
    torch.zeros(1, device="cuda")
    first = None
    if options.case in ("train", "matmul"):
        step = train_step() if options.case == "train" else matmul_step()
        value, unit = repeat(step, options.seconds), "steps/s"
    else:
        dataset, batch = {
            "images-pil": lambda: (Photos(options.photos, True), 256),
            "images-u8": lambda: (Photos(options.photos, False), 256),
            "tokens": lambda: (Tokens(options.tokens), 64),
            "records": lambda: (Records(options.records), 256),
        }[options.case]()
        value, first = feed(dataset, batch, options.workers, options.seconds)
        unit = "samples/s"
    print(json.dumps({"case": options.case, "value": value, "unit": unit, "first_batch_s": first,
                      "workers": options.workers, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
