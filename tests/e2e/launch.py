"""Starts trainer processes with torchrun's variables, without importing torch: launch.py --world=W -- worker.py ...

Ends with the first non-zero code of a rank, after it has ended the others; SIGTERM is passed on.
"""

import argparse
import os
import signal
import subprocess
import sys
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--node", type=int, default=0)
    parser.add_argument("--master", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=29500)
    parser.add_argument("--keep-going", action="store_true", help="a rank that fails does not end the others")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    per_node = arguments.world // arguments.nodes
    ranks = []
    for local in range(per_node):
        rank = arguments.node * per_node + local
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(arguments.world), LOCAL_RANK=str(local),
                   LOCAL_WORLD_SIZE=str(per_node), GROUP_RANK=str(arguments.node), MASTER_ADDR=arguments.master,
                   MASTER_PORT=str(arguments.port), TORCHELASTIC_RUN_ID="none")
        ranks.append(subprocess.Popen([sys.executable, "-B", *arguments.command], env=env))
    signal.signal(signal.SIGTERM, lambda *_: [r.terminate() for r in ranks])
    worst = 0
    while True:
        codes = [r.poll() for r in ranks]
        failed = [c for c in codes if c]
        if failed and not worst:
            worst = failed[0] if failed[0] > 0 else 128 - failed[0]
            if not arguments.keep_going:
                for r in ranks:
                    r.terminate()
        if all(c is not None for c in codes):
            return worst
        time.sleep(0.02)


sys.exit(main())
