"""The multi-step loop, the back ends that generate its tokens and the executors that run its calls."""
