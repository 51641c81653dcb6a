"""Everything that is measured: a table on stderr, one JSON object on stdout."""

import json
import sys

from tests.benchmarks import bench_move, bench_node, bench_pack, bench_stream, bench_tick


def main() -> None:
    """Measure moves beside runc and Docker, compression, whole nodes, streams, and ticks."""
    moves = bench_move.run([64, 512, 2048, 8192], rounds=3)
    for line in bench_move.table(moves):
        print(line, file=sys.stderr)
    packed = bench_pack.run()
    for line in bench_pack.table(packed):
        print(line, file=sys.stderr)
    node = bench_node.run()
    for line in bench_node.table(node):
        print(line, file=sys.stderr)
    streams = bench_stream.run(512)
    for line in bench_stream.table(512, streams):
        print(line, file=sys.stderr)
    ticks = [bench_tick.measure(*size) for size in bench_tick.SIZES]
    for tick in ticks:
        print(tick, file=sys.stderr)
    results = {"moves": moves, "packed": packed, **node, "streams": streams, "ticks": ticks}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
