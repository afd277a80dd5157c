"""Our own GPU kernels, in Triton: paged split-KV decode attention, writers, and the unfused control.

`device/` is what runs on the GPU. Here: what is supported (`shape`), how work is cut (`split`), and launchers that
check their operands. `host`, `shape` and `split` are plain Python, so that a plan can ask them without torch.
"""
