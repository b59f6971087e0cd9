# The emulator, the console and all commands without Spark.
#
#   make wheel
#   docker build --file deploy/images/console.Dockerfile --tag pairbus-console .
#   docker run --read-only --tmpfs /tmp --volume pairbus:/var/lib/pairbus … pairbus-console console …
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
    "${wheel}[cli,console,emulator,entra,websocket]" \
  && /opt/pairbus/bin/pip uninstall --yes pip

FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates python3 \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --system --uid 10001 --home-dir /var/lib/pairbus --create-home pairbus
COPY --from=builder /opt/pairbus /opt/pairbus
COPY deploy/images/health.py /opt/pairbus/health.py
ENV PATH=/opt/pairbus/bin:$PATH \
  PYTHONDONTWRITEBYTECODE=1 \
  PYTHONUNBUFFERED=1 \
  XDG_STATE_HOME=/var/lib/pairbus
WORKDIR /var/lib/pairbus
VOLUME /var/lib/pairbus
EXPOSE 5671 8710
USER 10001
# The console answers /healthz; the emulator accepts connections.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python", "/opt/pairbus/health.py", "--console", "8710", "--port", "5671"]
ENTRYPOINT ["pairbus"]
CMD ["--help"]
