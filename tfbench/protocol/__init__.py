"""Messages between controller and workers, and the channel that carries them."""
