"""Image classification at 224 pixels: what the workloads resnet18, resnet50, alexnet and vgg16 share.

Each network has its file; a workload in `suite` is a network with its defaults.
"""
