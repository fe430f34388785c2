"""A pod that measures itself: gpuagent beside a program in any image."""
