"""Batches from odbd, the data-serving daemon, for a training loop.

    import odbd
    loader = odbd.DataLoader()                  # ODB_SOCKET, RANK, WORLD_SIZE ... from the environment
    for epoch in range(2):
        loader.set_epoch(epoch)
        for batch in loader:                    # a dict of torch tensors over shared memory
            loss = model(batch["input_ids"], batch["labels"]) * batch.step.loss_scale
            loss.backward(); optimizer.step(); optimizer.zero_grad()

Works with Python 3.9 and later; torch and NumPy are used where they are installed.
"""

from odbd._batch import Batch
from odbd._errors import Error
from odbd._loader import DataLoader
from odbd._step import Counts, SampleId, Step

__version__ = "0.1.0"
__all__ = ["Batch", "Counts", "DataLoader", "Error", "SampleId", "Step"]
