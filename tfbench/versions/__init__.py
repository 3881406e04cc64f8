"""Race several versions of TensorFlow or of the source tree, and bisect between two of them."""
