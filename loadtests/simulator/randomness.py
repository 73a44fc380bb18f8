"""Random numbers that depend only on seed, purpose and indices, not on call order or chunk size."""

import zlib

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def generator(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Return an independent generator for each purpose and index.

    Args:
        seed: the user's seed, >= 0.
        indices: for example a block number, >= 0.
    """
    entropy = [seed, zlib.crc32(purpose.encode()), *indices]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def salt(seed: int, purpose: str, *indices: int) -> np.uint64:
    """Return a random 64-bit number, to combine (xor) with the arguments of `mix`."""
    return np.uint64(generator(seed, purpose, *indices).integers(0, 2**64, dtype=np.uint64))


def mix(numbers: U64) -> U64:
    """Apply the finaliser of splitmix64 (Steele et al., 2014), a random-looking bijection of uint64."""
    x = numbers + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
