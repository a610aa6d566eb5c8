# The image begins empty: the second stage holds the interpreter, the libraries it is linked to, the locked wheels and
# Kubestow, and nothing else: no shell, no package manager. What these are is written in deploy/image/build.sh, which
# tests/deploy/test_image.py runs as this file says, to start the daemon from the outcome.
#
# Pin the base by digest for a release: --build-arg PYTHON_IMAGE=python@sha256:...
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY deploy/image/build.sh ./
RUN ./build.sh interpreter
COPY requirements requirements
RUN ./build.sh wheels
COPY pyproject.toml README.md LICENSE ./
COPY scheduler scheduler
RUN ./build.sh kubestow

FROM scratch
ARG PYTHON_IMAGE
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kubestow" \
      org.opencontainers.image.description="A secondary Kubernetes scheduler that stows each pod together with its volumes and devices" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# In the order of how seldom they change.
COPY --from=build /build/layers/interpreter /
COPY --from=build /build/layers/wheels /
COPY --from=build /build/layers/kubestow /
# The build fails here, and no daemon later, if something is missing.
RUN ["/opt/kubestow/bin/python", "-BPs", "-c", "import highspy, kopf, kubernetes_asyncio.config, uvloop, scheduler.daemon.app, scheduler.testing.simulate"]
ENV PATH=/opt/kubestow/bin
USER 65532:65532
EXPOSE 10259
# Kubernetes has probes of its own; this is for a container that is run by hand, with the port as it is by default.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["/opt/kubestow/bin/python", "-BPs", "-c", "import ssl, urllib.request; urllib.request.urlopen('https://127.0.0.1:10259/livez', timeout=4, context=ssl._create_unverified_context())"]
ENTRYPOINT ["/opt/kubestow/bin/kubestow"]
CMD ["run"]
