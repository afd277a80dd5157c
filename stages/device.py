"""Which GPU does the study run on, as the driver and the stack's torch tell it, and how fast does it copy?

One record a GPU. The copy's rate (1 GiB read and 1 GiB written, events around each repetition) is what every later
ratio to the memory bandwidth refers to. Rejected if the driver and torch do not speak of the same device.
"""

import statistics

from kassay import gpus
from kassay.kinds.device import DeviceRecord
from kassay.stage import Metrics, Rejection, Stage, Unmet, main

COPY_BYTES = 1 << 30
REPETITIONS = 20


def run(stage: Stage) -> Metrics | Rejection:
    """Record every GPU that is asked for."""
    import torch

    if not torch.cuda.is_available():
        raise Unmet(f"torch {torch.__version__} of the stack sees no GPU")
    there = gpus.usable(gpus.inventory())
    wanted = stage.gpus
    if torch.cuda.device_count() < wanted:
        raise Unmet(f"torch sees {torch.cuda.device_count()} GPUs, {wanted} are needed")
    rates, faults = {}, []
    for index in range(wanted):
        facts = torch.cuda.get_device_properties(index)
        driver = there[index] if index < len(there) else None
        if driver is None or driver.name != facts.name:
            faults.append(
                f"GPU {index} is `{facts.name}` to torch, `{driver.name if driver else 'absent'}` to the driver"
            )
        seconds = copy_seconds(index)
        rate = 2 * COPY_BYTES / statistics.median(seconds) / 1e9
        rates[f"gpu {index} copy (GB/s)"] = round(rate, 1)
        stage.append(
            DeviceRecord(
                index=index,
                name=facts.name,
                capability=f"{facts.major}.{facts.minor}",
                multiprocessors=facts.multi_processor_count,
                memory_bytes=facts.total_memory,
                driver=driver.driver if driver else None,
                torch=torch.__version__,
                cuda=torch.version.cuda,
                copy_gb_per_s=rate,
                copy_repetitions_s=seconds,
            )
        )
    return stage.rejected("; ".join(faults), **rates) if faults else rates


def copy_seconds(index: int) -> list[float]:
    """Seconds of each copy of 1 GiB on one device, timed by its own events after one warm-up."""
    import torch

    with torch.cuda.device(index):
        source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        target.copy_(source)
        marks = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPETITIONS)
        ]
        for begin, end in marks:
            begin.record()
            target.copy_(source)
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in marks]


if __name__ == "__main__":
    main(run)
