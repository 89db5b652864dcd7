"""Token files as nanoGPT, llm.c and Megatron-LM write them, and what a client should see of them:
written from the formats' definitions, with NumPy, and nothing of pinserve's."""

import struct

import numpy

MASK = 2**64 - 1


def tokens_of(count, seed, high=50000):
    return numpy.random.default_rng(seed).integers(0, high, count)


class File:
    """Tokens as int64, and where its documents begin."""

    def __init__(self, tokens, lengths=None):
        self.tokens = numpy.asarray(tokens, numpy.int64)
        lengths = [len(self.tokens)] if lengths is None else lengths
        self.starts = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int64)

    @property
    def documents(self):
        return len(self.starts) - 1


def write_bare(path, tokens, dtype="<u2", before=b""):
    with open(path, "wb") as file:
        file.write(before)
        file.write(numpy.asarray(tokens).astype(dtype).tobytes())
    return File(tokens)


def llmc_header(magic, version, count):
    header = numpy.zeros(256, "<i4")
    header[:3] = magic, version, count
    return header.tobytes()


def write_llmc(path, tokens, dtype="<u2"):
    magic, version = {"<u2": (20240520, 1), "<u4": (20240801, 7)}[dtype]
    return write_bare(path, tokens, dtype, llmc_header(magic, version, len(tokens)))


def write_megatron(stem, documents, dtype="<u2"):
    """documents: of each, the lengths of its sequences. Tokens are made up."""
    lengths = [length for document in documents for length in document]
    tokens = tokens_of(sum(lengths), len(lengths))
    width = numpy.dtype(dtype).itemsize
    pointers = numpy.cumsum([0, *lengths])[:-1] * width
    indices = numpy.cumsum([0, *(len(document) for document in documents)])
    tokens.astype(dtype).tofile(f"{stem}.bin")
    with open(f"{stem}.idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<Q", 1))
        file.write(struct.pack("<B", {"<u2": 8, "<i4": 4}[dtype]))
        file.write(struct.pack("<QQ", len(lengths), len(indices)))
        file.write(numpy.asarray(lengths, "<i4").tobytes())
        file.write(pointers.astype("<i8").tobytes())
        file.write(indices.astype("<i8").tobytes())
    return File(tokens, [sum(document) for document in documents])


# -- samples -------------------------------------------------------------------------------------


def windows(files, seq, stride=None, within=False, first_document=0):
    """Every window of the files in order: (tokens, positions, documents), each of seq + 1."""
    stride = stride or seq
    made = []
    for file in files:
        number = numpy.searchsorted(file.starts, numpy.arange(len(file.tokens)), "right") - 1
        position = numpy.arange(len(file.tokens)) - file.starts[number]
        runs = zip(file.starts, file.starts[1:]) if within else [(0, len(file.tokens))]
        for begin, end in runs:
            for at in range(begin, end - seq, stride):
                part = slice(at, at + seq + 1)
                made.append((file.tokens[part], position[part], number[part] + first_document))
        first_document += file.documents
    return made


def mix(x):
    for _ in range(2):
        x = ((x ^ x >> 32) * 0xd6e8feb86659fd93) & MASK
    return x ^ x >> 32


def permuted(seed, epoch, samples, position):
    """The keyed permutation of pinserve's orders, version 1."""
    key = mix((mix((seed + 0x9e3779b97f4a7c15) & MASK) + epoch) & MASK)
    stride = mix((key + 0x9e3779b97f4a7c15) & MASK) | 1
    if samples <= 1:
        return 0
    bits = max(2, (samples - 1).bit_length())
    widths = [bits // 2, bits - bits // 2]
    halves = [position >> widths[1], position & ((1 << widths[1]) - 1)]
    while True:
        for turn in range(12):
            x = ((halves[(turn + 1) % 2] + key + turn * stride) * 0x9e3779b97f4a7c15) & MASK
            x = ((x ^ x >> 32) * 0xd1342543de82ef95) & MASK
            halves[turn % 2] ^= x >> (64 - widths[turn % 2])
        at = halves[0] << widths[1] | halves[1]
        if at < samples:
            return at


class Plain:
    """The windows of files, one after the other."""

    def __init__(self, made):
        self.made = made
        self.samples = len(made)

    def sample(self, _seed, _epoch, _shuffled, number):
        return self.made[number]


class Blend:
    """parts: of each, its weight as a whole number and its windows."""

    def __init__(self, parts):
        divisor = numpy.gcd.reduce([weight for weight, _ in parts])
        self.weights = [int(weight // divisor) for weight, _ in parts]
        self.made = [made for _, made in parts]
        self.samples = sum(len(made) for made in self.made)
        self.period = sum(self.weights)
        self.table = []
        counts = [0] * len(parts)
        for place in range(self.period):
            may = [k for k, weight in enumerate(self.weights)
                   if counts[k] * self.period < (place + 1) * weight]
            part = min(may, key=lambda k: ((counts[k] + 1) / self.weights[k], k))
            self.table.append((part, counts[part]))
            counts[part] += 1
        self.draws = [sum(self.table[s % self.period][0] == k for s in range(self.samples))
                      for k in range(len(parts))]

    def sample(self, seed, epoch, shuffled, number):
        part, rank = self.table[number % self.period]
        draw = (epoch * self.draws[part] + number // self.period * self.weights[part] + rank)
        turn, own = divmod(draw, len(self.made[part]))
        if shuffled:
            key = seed ^ ((part + 1) * 0x9e3779b97f4a7c15 & MASK)
            own = permuted(key, turn, len(self.made[part]), own)
        return self.made[part][own]


def batches(dataset, batch, epochs, seed=0, shuffled=True, rank=0, world=1):
    """What a client gets, batch by batch: (sample numbers, samples)."""
    for epoch in range(epochs):
        for step in range(dataset.samples // (batch * world)):
            numbers = []
            for i in range(batch):
                number = step * batch * world + i * world + rank
                if shuffled:
                    number = permuted(seed, epoch, dataset.samples, number)
                numbers.append(number)
            yield numbers, [dataset.sample(seed, epoch, shuffled, n) for n in numbers]
