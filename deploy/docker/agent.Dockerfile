# The agent: samples a node and takes work. `make images` builds it; docs/environments.md says what it needs to see a node.
#
# BASE is any Linux with glibc and a python3 (3.10 or newer) that has pip and venv, and on POWER the packages that
# docs/deploy/power.md names. wheels/ holds the project's wheel, constraints.txt, others that shall not be fetched, and kubectl if
# agents of a cluster shall make Jobs.
ARG BASE=python:3.12.11-slim-bookworm

FROM ${BASE} AS build
ARG BUILD=by-hand
LABEL gpuagent.build=${BUILD}
# pip's own settings: 1 asks no package index; where else it looks.
ARG PIP_NO_INDEX
ARG PIP_EXTRA_INDEX_URL
COPY wheels /wheels
RUN python3 -m venv --without-pip --system-site-packages /opt/gpuagent \
 && python3 -m pip --python /opt/gpuagent/bin/python3 install --no-cache-dir --disable-pip-version-check \
    --find-links /wheels --constraint /wheels/constraints.txt "$(ls /wheels/gpuagent-*.whl)" \
 && if [ -e /wheels/kubectl ]; then cp /wheels/kubectl /opt/gpuagent/bin/ && chmod 755 /opt/gpuagent/bin/kubectl; fi

FROM ${BASE}
ARG BUILD=by-hand
ARG VERSION=0
LABEL gpuagent.build=${BUILD} \
      org.opencontainers.image.title="gpuagent agent" \
      org.opencontainers.image.description="Samples CPU, memory and GPUs of a node and streams them to a collector" \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gpuagent /opt/gpuagent
# Group 0 may write as well: OpenShift runs it as any user of that group.
RUN mkdir -p /var/lib/gpuagent && chown 65532:0 /var/lib/gpuagent && chmod 2770 /var/lib/gpuagent
# The root can be read-only: all that is written goes there. The last two have NVIDIA's runtime bring the driver's NVML along.
ENV PATH=/opt/gpuagent/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/var/lib/gpuagent \
    GPUAGENT_SPOOL_DIR=/var/lib/gpuagent/spool \
    GPUAGENT_RUNTIME_DIR=/var/lib/gpuagent/run \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
VOLUME /var/lib/gpuagent
USER 65532:0
# Whether the agent answers on the socket that `gpuagent run` uses.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python3", "-I", "-S", "-c", "import glob, socket; socket.socket(socket.AF_UNIX).connect(glob.glob('/var/lib/gpuagent/run/*.sock')[0])"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["gpuagent"]
CMD ["start"]
