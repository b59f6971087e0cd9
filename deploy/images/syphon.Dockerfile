# The syphon with Spark and Java, and all commands that work on a backlog.
#
#   make wheel
#   docker build --file deploy/images/syphon.Dockerfile --tag pairbus-syphon .
#
# deploy/README.md has complete commands.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS builder
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv
COPY constraints.txt dist/*.whl /build/
RUN python3 -m venv /opt/pairbus \
  && wheel=$(echo /build/pairbus-*.whl) \
  && /opt/pairbus/bin/pip install --no-cache-dir --constraint /build/constraints.txt \
    "${wheel}[cli,entra,spark,websocket]" \
  && /opt/pairbus/bin/pip uninstall --yes pip

FROM ${BASE}
# tini removes the processes that Spark leaves behind when it is killed.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install --yes --no-install-recommends \
    ca-certificates openjdk-21-jre-headless procps python3 tini \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --system --uid 10001 --home-dir /var/lib/pairbus --create-home pairbus
COPY --from=builder /opt/pairbus /opt/pairbus
COPY deploy/images/health.py /opt/pairbus/health.py
ENV PATH=/opt/pairbus/bin:$PATH \
  PYTHONDONTWRITEBYTECODE=1 \
  PYTHONUNBUFFERED=1 \
  XDG_CACHE_HOME=/tmp \
  XDG_STATE_HOME=/var/lib/pairbus
WORKDIR /var/lib/pairbus
VOLUME /var/lib/pairbus
EXPOSE 9464
USER 10001
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
  CMD ["python", "/opt/pairbus/health.py", "--status-file", "/tmp/syphon.json"]
ENTRYPOINT ["tini", "--", "pairbus"]
CMD ["syphon", "--status-file", "/tmp/syphon.json"]
