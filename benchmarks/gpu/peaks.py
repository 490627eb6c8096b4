"""The dense bf16 matrix rate of NVIDIA's data sheets, by the name that the driver gives the GPU.

The same chip is sold at several clocks and power limits, so a name that is not here has no peak: a
share of another card's rate would say nothing.
"""

HOPPER = "NVIDIA H100 Tensor Core GPU data sheet; of its rates with sparsity half"
H200 = "NVIDIA H200 Tensor Core GPU data sheet; of its rates with sparsity half"
AMPERE = "NVIDIA A100 Tensor Core GPU data sheet"
BLACKWELL = "stas00/ml-engineering, compute/accelerator, dense (as catalog/chips)"

# name: (FLOP/s, source)
PEAKS = {
    "NVIDIA H100 80GB HBM3": (989e12, HOPPER + ", H100 SXM: 1,979"),
    "NVIDIA H100 PCIe": (756e12, HOPPER + ", H100 PCIe: 1,513"),
    "NVIDIA H100 NVL": (835e12, HOPPER + ", H100 NVL: 1,671"),
    "NVIDIA H200": (989e12, H200 + ", H200 SXM: 1,979"),
    "NVIDIA H200 NVL": (835e12, H200 + ", H200 NVL: 1,671"),
    "NVIDIA GH200 480GB": (989e12, "NVIDIA GH200 Grace Hopper Superchip data sheet, half of 1,979"),
    "NVIDIA GH200 144G HBM3e": (989e12, "NVIDIA GH200 Grace Hopper Superchip data sheet, half of 1,979"),
    "NVIDIA A100-SXM4-40GB": (312e12, AMPERE),
    "NVIDIA A100-SXM4-80GB": (312e12, AMPERE),
    "NVIDIA A100-PCIE-40GB": (312e12, AMPERE),
    "NVIDIA A100 80GB PCIe": (312e12, AMPERE),
    "NVIDIA L40S": (362e12, "NVIDIA L40S data sheet, without sparsity"),
    "NVIDIA B200": (2250e12, BLACKWELL),
    "NVIDIA GB200": (2500e12, BLACKWELL),
    "NVIDIA B300 SXM6 AC": (2250e12, BLACKWELL),
    "NVIDIA GB300": (2500e12, BLACKWELL),
}


def peak_flops(gpu):
    """Of the GPU of exactly this name; None where the table does not know it."""
    return PEAKS[gpu][0] if gpu in PEAKS else None


def peak_source(gpu):
    return PEAKS[gpu][1] if gpu in PEAKS else f"no peak is known of '{gpu}': add it to peaks.py"
