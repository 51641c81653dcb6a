"""Powers of a large matrix modulo a prime, with the threads of OpenBLAS: numpy_job.py STEPS FILE.

Every number stays a whole number below 2**53, so no order of additions changes the result.
"""

import sys

import numpy as np

SIZE = 640
PRIME = 1_048_573
#: So many products are kept, so that there is some memory that must come along.
KEPT = 16


def main(steps: int, result: str) -> None:
    grid = np.arange(SIZE * SIZE, dtype=np.float64).reshape(SIZE, SIZE)
    factor = np.mod(grid * 7919 + 104729, 8191)
    kept = [np.mod(grid * (k + 1), PRIME) for k in range(KEPT)]
    for step in range(steps):
        product = np.mod(kept[step % KEPT] @ factor, PRIME)
        kept[step % KEPT] = product
        print(f"step {step} trace {int(np.trace(product))} sum {int(product.sum())}", flush=True)
    np.save(result, np.mod(sum(kept), PRIME).astype(np.int64))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
