"""Collect profiles by the methods that need a program of their own: Keras' callback, and sampling of several workers.

Run it as ``python -m tests.e2e.ways fit FOLDER`` or ``python -m tests.e2e.ways sample FOLDER COUNT``. The latter starts
``python -m tests.e2e.ways work MILLISECONDS``, which prints its address and works until its input ends.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import tensorflow as tf

from tfbench.worker import profiler


def fit(folder: str) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Input([32]), tf.keras.layers.Dense(16), tf.keras.layers.Dense(4)])
    model.compile(optimizer="sgd", loss="mse", jit_compile=False)
    data = tf.data.Dataset.from_tensors((tf.zeros([32]), tf.zeros([4]))).repeat(320).batch(16)
    model.fit(data, epochs=1, verbose=0, callbacks=[profiler.by_callback(folder, (5, 14))])


def work(milliseconds: float) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    step = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)), jit_compile=False)
    matrix = tf.random.normal([128, 128])
    step(matrix)
    print(profiler.serve(), flush=True)
    number = 0
    while not ended.is_set():
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            step(matrix).numpy()
            time.sleep(milliseconds * 1e-3)
        number += 1


def sample(folder: str, count: int) -> None:
    command = [sys.executable, "-m", "tests.e2e.ways", "work"]
    workers = [
        subprocess.Popen([*command, str(5 * (number + 1))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    try:
        addresses = [worker.stdout.readline().strip() for worker in workers]
        profiler.sample(addresses, folder, 0.5)
    finally:
        for worker in workers:
            worker.stdin.close()
            worker.wait()


if __name__ == "__main__":
    {"fit": fit, "work": lambda text: work(float(text)), "sample": lambda folder, text: sample(folder, int(text))}[
        sys.argv[1]
    ](*sys.argv[2:])
