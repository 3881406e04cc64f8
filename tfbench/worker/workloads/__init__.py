"""Small fixed workloads of TensorFlow, from 5 µs to 50 ms, for the calibration of the gate and checks of machines."""
