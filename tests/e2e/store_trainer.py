"""A trainer that keeps torchrun's store busy while odbd's ranks meet and an epoch runs: store_trainer.py OUT OPTIONS.

Options: calls (pairs of set and get). Rank r writes OUT.<r>.json as worker.py does, with the number of calls made.
"""

import json
import sys
import threading

import torch.distributed as dist

import odbd


def main():
    out, options = sys.argv[1], json.loads(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    made = []

    def call():
        for number in range(options["calls"]):
            key = "%d/%d" % (rank, number % 64)
            store.set(key, str(number))
            made.append(int(store.get(key)) == number)

    caller = threading.Thread(target=call)
    caller.start()
    steps = []
    with odbd.DataLoader(tensors="numpy") as loader:
        for batch in loader:
            step = batch.step
            steps.append({"index": step.index, "ids": [list(i) for i in step.sample_ids], "local": list(step.local),
                          "global": list(step.global_)})
    caller.join()
    with open("%s.%d.json" % (out, rank), "w", encoding="utf-8") as handle:
        json.dump({"rank": rank, "epochs": [{"steps": steps}], "calls": sum(made)}, handle)
    dist.barrier()


main()
