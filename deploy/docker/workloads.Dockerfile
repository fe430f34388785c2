# The workloads, for `gpuagent run --environment docker:gpuagent-workloads`. `gpuagent image build` and `make images` build it.
#
# BASE is any Linux with glibc and a python3 (3.10 or newer) that has pip and venv. wheels/ holds the project's wheel,
# constraints.txt, and others that shall not be fetched.
ARG BASE=python:3.12.11-slim-bookworm

FROM ${BASE} AS build
ARG BUILD=by-hand
LABEL gpuagent.build=${BUILD}
# The torch that the GPU wants, as torch==2.4.1. pip's default on x86-64 brings CUDA along; with the index of PyTorch's CPU builds
# as PIP_EXTRA_INDEX_URL it is a tenth of the size.
ARG TORCH=torch
# pip's own settings: 1 asks no package index; where else it looks.
ARG PIP_NO_INDEX
ARG PIP_EXTRA_INDEX_URL
COPY wheels /wheels
RUN python3 -m venv --without-pip /opt/gpuagent \
 && python3 -m pip --python /opt/gpuagent/bin/python3 install --no-cache-dir --disable-pip-version-check \
    --find-links /wheels --constraint /wheels/constraints.txt "$(ls /wheels/gpuagent-*.whl)[workloads]" "${TORCH}"

FROM ${BASE}
ARG BUILD=by-hand
ARG VERSION=0
LABEL gpuagent.build=${BUILD} \
      org.opencontainers.image.title="gpuagent workloads" \
      org.opencontainers.image.description="Deep-learning workloads that report their phases, steps and results" \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gpuagent /opt/gpuagent
# torch asks for its user's name, and none of them has one here. The last two have NVIDIA's runtime bring CUDA's driver and NVML along.
ENV PATH=/opt/gpuagent/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    USER=gpuagent \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:0
# It runs to its end and serves nobody.
HEALTHCHECK NONE
CMD ["python3", "-I", "-m", "gpuagent_workloads", "list"]
