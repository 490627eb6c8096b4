"""What the check of a GPU demands, as plain values and functions: figures in, verdicts out.

Every demand is a Bar. A figure that a run should have given and did not is not a value, and its bar
has failed: nothing passes for lack of a figure. NOT CHECKED are only parts that lack something from
outside, such as PyTorch; NOT RUN those that did not fit into the time.
"""

import math
import statistics

from peaks import peak_flops

FAILED, PASSED, UNCHECKED, NOT_RUN = "FAILED", "PASSED", "NOT CHECKED", "NOT RUN"


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

    def found(self):
        return self.reason or "not measured" if self.value is None else f"{self.value:.4g}{self.unit}"

    def demanded(self):
        return f"{'>=' if self.at_least else '<='} {self.bound:.4g}{self.unit}"

    def row(self):
        return f"| {self.name} | {self.found()} | {self.demanded()} | {self.verdict()} |"

    def line(self):
        return f"{self.name}: {self.found()} ({self.demanded()})"

    def margin(self):
        """The value over its bound, the larger the better; of none the least there is."""
        if self.value is None or not math.isfinite(self.value) or self.value <= 0:
            return -math.inf if not self.met() else math.inf
        return self.value / self.bound if self.at_least else self.bound / self.value


def bar_table(bars):
    head = ["| what | measured | demanded | |", "|---|---|---|---|"]
    return "\n".join(head + [bar.row() for bar in bars])


def verdict_of(verdicts):
    """Of a part with several: the worst; of none: not checked."""
    verdicts = list(verdicts)
    for one in (FAILED, NOT_RUN, UNCHECKED):
        if one in verdicts:
            return one
    return PASSED if verdicts else UNCHECKED


def summary_of(bars):
    """The bar that failed first, or else the one that is nearest to failing, in one line."""
    if not bars:
        return ""
    failed = [bar for bar in bars if not bar.met()]
    worst = failed[0] if failed else min(bars, key=Bar.margin)
    more = f"; {len(failed)} of {len(bars)} failed" if failed else f"; {len(bars)} held"
    return worst.line() + (more if len(bars) > 1 else "")


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
