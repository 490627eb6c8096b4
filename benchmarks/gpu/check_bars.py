"""What the check of a GPU demands, as plain values and functions: figures in, verdicts out.

Every demand is a Bar. A figure that a run should have given and did not is no value, and its bar
has failed: nothing passes for want of a figure. NOT CHECKED are only parts that lack something from
outside, such as PyTorch.
"""

import math
import statistics

# Dense bf16 matrix rate of the maker's data sheet, FLOP/s, by the GPU's name.
PEAKS = {"H100": 989e12, "H200": 989e12, "GH200": 989e12, "A100": 312e12, "B200": 2250e12,
         "GB200": 2450e12, "B300": 2250e12, "GB300": 2450e12, "L40S": 362e12}

FAILED, PASSED, UNCHECKED = "FAILED", "PASSED", "NOT CHECKED"


class Bar:
    """A demand: `value` at least or at most `bound`. value None: not measured, for `reason`."""

    def __init__(self, name, value, bound, at_least=True, unit="", reason=""):
        self.name, self.value, self.bound = name, value, bound
        self.at_least, self.unit, self.reason = at_least, unit, reason

    def met(self):
        if self.value is None or not math.isfinite(self.value):
            return False
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def verdict(self):
        return PASSED if self.met() else FAILED

    def row(self):
        found = self.reason or "not measured" if self.value is None else f"{self.value:.4g}{self.unit}"
        sign = ">=" if self.at_least else "<="
        return f"| {self.name} | {found} | {sign} {self.bound:.4g}{self.unit} | {self.verdict()} |"


def bar_table(bars):
    head = ["| what | measured | demanded | |", "|---|---|---|---|"]
    return "\n".join(head + [bar.row() for bar in bars])


def verdict_of(verdicts):
    """Of a part with several: the worst; of none: not checked."""
    verdicts = list(verdicts)
    if FAILED in verdicts:
        return FAILED
    return PASSED if verdicts and all(one == PASSED for one in verdicts) else UNCHECKED


def peak_flops(gpu):
    """Of the GPU of this name; None where the table does not know it."""
    names = sorted((name for name in PEAKS if name in gpu), key=len)
    return PEAKS[names[-1]] if names else None


def mfu(result, gpu):
    """Of `tutti bench step --json`, over the data sheet's rate."""
    peak = peak_flops(gpu)
    return result["model_flops_per_step"] / result["step_seconds"]["median"] / peak if peak else None


def worst_difference(expected, found, steps):
    """The largest |a - b| of two lists of that many losses; None where one has another number, or
    one that is not finite."""
    if not expected or not found or len(expected) != steps or len(found) != steps:
        return None
    differences = [abs(a - b) for a, b in zip(expected, found)]
    return max(differences) if all(math.isfinite(one) for one in differences) else None


def final_loss(losses, steps, tail=50):
    """The mean of the last steps, which says more than one batch."""
    return statistics.fmean(losses[-tail:]) if losses and len(losses) == steps else None


# Vendors' kernels, and those bound by arithmetic wherever they are fast.
NOT_OURS = ("gemm", "narrow_gemm", "grouped_gemm", "attention")


def own_memory_kernels(kernels, least_seconds):
    """Of `tutti bench kernels --json`; short ones are measured with their start."""
    return [one for one in kernels
            if one["bound"] == "memory" and one["median_seconds"] >= least_seconds
            and not one["name"].startswith(NOT_OURS)]


def suites_of(listing):
    """Of a test program's --gtest_list_tests."""
    return [line.split("#")[0].strip()[:-1] for line in listing.splitlines()
            if line and not line.startswith(" ") and line.split("#")[0].rstrip().endswith(".")]
