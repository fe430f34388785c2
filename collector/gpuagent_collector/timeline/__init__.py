"""A run as a trace: phases, steps and samples on one axis, beside what a profiler recorded, for Perfetto."""
