"""Hot paths, whose instructions are counted: see `benchmarks.hot_paths.guard`."""
