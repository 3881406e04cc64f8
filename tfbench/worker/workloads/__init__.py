"""Small fixed workloads of TensorFlow, from 5 µs to 50 ms, that the gate is measured with."""
