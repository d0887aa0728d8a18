"""CRC-32C and CRC-64/NVME without third-party code: two bytes at a time, about 5 MB/s, or google-crc32c or NumPy where these happen
to be installed. tests/stores/test_fake_with_official_clients.py holds the known answers and compares the two."""
import base64
import functools
import hashlib
import sys
import zlib

try:
    import google_crc32c
except ImportError:
    google_crc32c = None
try:
    import numpy
except ImportError:
    numpy = None

CRC32C, CRC64NVME = 0x82F63B78, 0x9A6C9329AC4BC9B5  # reflected polynomials


@functools.lru_cache(maxsize=None)
def _table(polynomial):
    """The effect of each 16-bit little-endian word on a reflected CRC."""
    table = []
    for word in range(1 << 16):
        for _ in range(16):
            word = (word >> 1) ^ (polynomial if word & 1 else 0)
        table.append(word)
    return table


LANES, LEAST = 1024, 1 << 18


@functools.lru_cache(maxsize=None)
def _array(polynomial):
    return numpy.array(_table(polynomial), numpy.uint64)


@functools.lru_cache(maxsize=64)
def _zeros(polynomial, words, width):
    """What so many words of zeros make of each single bit of a CRC."""
    table, crc = _array(polynomial), numpy.uint64(1) << numpy.arange(width, dtype=numpy.uint64)
    for _ in range(words):
        crc = table[crc & numpy.uint64(0xFFFF)] ^ (crc >> numpy.uint64(16))
    return [int(value) for value in crc]


def _lanes(view, polynomial, crc):
    """The CRC of the beginning of the bytes, as LANES stretches side by side that are then joined; and how many bytes that was."""
    table, words = _array(polynomial), len(view) // (2 * LANES)
    lanes = numpy.frombuffer(view[:2 * LANES * words], "<u2").reshape(LANES, words).T.astype(numpy.uint64)
    state = numpy.zeros(LANES, numpy.uint64)
    state[0] = crc
    for row in lanes:
        state = table[(state ^ row) & numpy.uint64(0xFFFF)] ^ (state >> numpy.uint64(16))
    columns, joined = _zeros(polynomial, words, polynomial.bit_length()), int(state[0])
    for lane in state[1:]:
        moved = int(lane)
        for bit, column in enumerate(columns):
            moved ^= column if joined >> bit & 1 else 0
        joined = moved
    return joined, 2 * LANES * words


def _crc(data, polynomial, ones):
    table, crc, view = _table(polynomial), ones, memoryview(data).cast("B")
    if numpy is not None and len(view) >= LEAST:
        crc, done = _lanes(view, polynomial, crc)
        view = view[done:]
    even = len(view) & ~1
    words = view[:even].cast("H") if sys.byteorder == "little" else memoryview(view[:even]).cast("H")
    for word in words:
        crc = table[(crc ^ word) & 0xFFFF] ^ (crc >> 16)
    if even < len(view):
        crc ^= view[even]
        for _ in range(8):
            crc = (crc >> 1) ^ (polynomial if crc & 1 else 0)
    return crc ^ ones


def crc32c(data):
    if google_crc32c:
        return google_crc32c.value(bytes(data)).to_bytes(4, "big")
    return remembered_crc32c(data) if isinstance(data, bytes) else slow_crc32c(data)


@functools.lru_cache(maxsize=32)
def remembered_crc32c(data):
    """Tests put the same contents again and again."""
    return slow_crc32c(data)


def slow_crc32c(data):
    return _crc(data, CRC32C, 0xFFFFFFFF).to_bytes(4, "big")


def crc64nvme(data):
    return _crc(data, CRC64NVME, (1 << 64) - 1).to_bytes(8, "big")


def crc32(data):
    return zlib.crc32(data).to_bytes(4, "big")


def sha256(data):
    return hashlib.sha256(data).digest()


def sha1(data):
    return hashlib.sha1(data).digest()


KINDS = {"crc32": crc32, "crc32c": crc32c, "crc64nvme": crc64nvme, "sha1": sha1, "sha256": sha256}


def text(value):
    """As the stores write them."""
    return base64.b64encode(value).decode()
