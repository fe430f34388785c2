# The collector: receives from agents, stores, answers. `make images` builds it. It listens beyond loopback only with a
# certificate (GPUAGENT_TLS_CERT, GPUAGENT_TLS_KEY), or where `--insecure` is added to its command.
#
# BASE is any Linux with glibc and a python3 (3.10 or newer) that has pip and venv. wheels/ holds the project's wheel,
# constraints.txt, and others that shall not be fetched.
ARG BASE=python:3.12.11-slim-bookworm

FROM ${BASE} AS build
ARG BUILD=by-hand
LABEL gpuagent.build=${BUILD}
# pip's own settings: 1 asks no package index; where else it looks.
ARG PIP_NO_INDEX
ARG PIP_EXTRA_INDEX_URL
# What of the project is installed beside the agent: collector, or collector,lake for several collectors on one DuckLake.
ARG EXTRAS=collector,lake
COPY wheels /wheels
RUN python3 -m venv --without-pip /opt/gpuagent \
 && python3 -m pip --python /opt/gpuagent/bin/python3 install --no-cache-dir --disable-pip-version-check \
    --find-links /wheels --constraint /wheels/constraints.txt "$(ls /wheels/gpuagent-*.whl)[${EXTRAS}]"

FROM ${BASE}
ARG BUILD=by-hand
ARG VERSION=0
LABEL gpuagent.build=${BUILD} \
      org.opencontainers.image.title="gpuagent collector" \
      org.opencontainers.image.description="Receives what agents send, stores it in DuckDB or DuckLake, compares and reports" \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gpuagent /opt/gpuagent
# Group 0 may write as well: OpenShift runs it as any user of that group.
RUN mkdir -p /var/lib/gpuagent && chown 65532:0 /var/lib/gpuagent && chmod 2770 /var/lib/gpuagent
# The root can be read-only: all that is written goes there, but for what queries spill to /tmp.
ENV PATH=/opt/gpuagent/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/var/lib/gpuagent \
    GPUAGENT_TOKEN_FILE=/var/lib/gpuagent/token \
    PYTHONDONTWRITEBYTECODE=1
VOLUME /var/lib/gpuagent
WORKDIR /var/lib/gpuagent
USER 65532:0
EXPOSE 50051
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python3", "-I", "-S", "-c", "import socket; socket.create_connection(('127.0.0.1', 50051), 4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["collector"]
CMD ["serve", "--listen", "0.0.0.0:50051", "--store", "/var/lib/gpuagent/runs.duckdb"]
