"""A scripted CUDA driver: a library in C whose GPU has three multiprocessors, the last one without work."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now = 1000, cycles = 7;
static int depth, refused, memory[1 << 16];

/* The script: time passes at a clock, or by itself at that of FAKE_CUDA_MHZ; the kernel is refused, or later its launches. */
void fake_pass(uint64_t nanoseconds, uint64_t megahertz) {
  now += nanoseconds;
  cycles += nanoseconds * megahertz / 1000;
}
void fake_refuse(int what) { refused = what; }
int fake_depth(void) { return depth; }

int cuInit(unsigned flags) { return flags; }
int cuDeviceGet(int *device, int ordinal) { *device = 5; return ordinal; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = 3;
  return attribute == 16 && device == 5 ? 0 : 1;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &depth; return device != 5; }
int cuCtxPushCurrent_v2(void *context) { depth++; return context != &depth; }
int cuCtxPopCurrent_v2(void **context) { *context = &depth; return depth-- < 1; }
int cuModuleLoadData(void **module, const char *image) {
  *module = &now;
  return strstr(image, ".visible .entry tfbench_mark(") && refused != 1 ? 0 : 218;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = &cycles;
  return module == &now && !strcmp(name, "tfbench_mark") ? 0 : 500;
}
int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  *pointer = memory;
  return bytes > sizeof memory || flags != 3;
}
int cuMemHostGetDevicePointer_v2(uint64_t *address, void *pointer, unsigned flags) {
  *address = (uint64_t)pointer;
  return flags;
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  uint64_t *marks = *(uint64_t **)arguments[0];
  if (depth != 1 || function != &cycles || x != 3 || y * z * bx * by * bz != 1 || shared || stream || extra) return 201;
  if (refused == 2) return 719;
  if (getenv("FAKE_CUDA_MHZ")) {
    struct timespec passed;
    clock_gettime(CLOCK_MONOTONIC, &passed);
    now = passed.tv_sec * 1000000000ull + passed.tv_nsec;
    cycles = now * atoi(getenv("FAKE_CUDA_MHZ")) / 1000;
  }
  for (int processor = 0; processor < 3; processor++) {
    marks[2 * processor] = processor < 2 ? cycles : 42;
    marks[2 * processor + 1] = now;
  }
  return 0;
}
int cuCtxSynchronize(void) { return depth != 1; }
"""


def library(folder: Path) -> ctypes.CDLL:
    """Compile the driver into a folder, and load it; skip the test without a C compiler."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    source, made = folder / "cuda.c", folder / "libcuda.so.1"
    source.write_text(_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    return ctypes.CDLL(str(made))
