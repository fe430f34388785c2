# The workloads for Charliecloud, whose builder reads a small part of the Dockerfile language: no variables in FROM, no labels.
# `gpuagent image build charliecloud` builds it. An image is a directory, so that what is deleted at the end takes no space.
#
# The base is any Linux with glibc and a python3 (3.10 or newer) that has pip and venv. wheels/ holds the project's wheel,
# constraints.txt, and others that shall not be fetched.
FROM python:3.12.11-slim-bookworm
# What of the project is installed: [workloads]; nothing for the agent alone; [collector,lake].
ARG EXTRAS=[workloads]
# The torch that the GPU wants, as torch==2.4.1.
ARG TORCH=torch
# pip's own settings: 1 asks no package index; where else it looks.
ARG PIP_NO_INDEX
ARG PIP_EXTRA_INDEX_URL
COPY wheels /wheels
RUN python3 -m venv --without-pip /opt/gpuagent \
 && python3 -m pip --python /opt/gpuagent/bin/python3 install --no-cache-dir --disable-pip-version-check \
    --find-links /wheels --constraint /wheels/constraints.txt "$(ls /wheels/gpuagent-*.whl)${EXTRAS}" ${TORCH} \
 && rm -r /wheels
ENV PATH=/opt/gpuagent/bin:/usr/local/bin:/usr/bin:/bin
