"""Race several versions of TensorFlow or of the tree, and bisect between two of them."""
