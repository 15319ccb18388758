"""A flat forward pass for models in the layout of Llama: fused projections, and small kernels where they pay.

Start reading at `forward.py`. `layout.py` says which models it takes, `torch_ops.py` is the reference of the steps between the
matrix products, `native.py` and `kernels.cpp` do them on the CPU, `cuda.py` on CUDA.
"""

from __future__ import annotations
