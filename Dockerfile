# The final image contains the interpreter, its shared libraries, the locked wheels and Kubestow.
# It has no shell and no package manager. deploy/image/build.sh makes the layers, and the tests run the same script.
#
# Pin the base image by digest for a release: --build-arg PYTHON_IMAGE=python@sha256:...
# Nothing below depends on the processor: `--platform` chooses the base image, and pip chooses the wheels.
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY deploy/image/build.sh ./
RUN ./build.sh tools
RUN ./build.sh interpreter
COPY requirements requirements
RUN ./build.sh wheels
COPY pyproject.toml README.md LICENSE ./
COPY kubestow kubestow
COPY scheduler scheduler
COPY simulator simulator
RUN ./build.sh kubestow

FROM scratch
ARG PYTHON_IMAGE
ARG VERSION=unreleased
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="kubestow" \
      org.opencontainers.image.description="A secondary Kubernetes scheduler that stows each pod together with its volumes and devices" \
      org.opencontainers.image.url="https://github.com/kubestow/kubestow" \
      org.opencontainers.image.source="https://github.com/kubestow/kubestow" \
      org.opencontainers.image.documentation="https://github.com/kubestow/kubestow/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The layer that changes least often comes first.
COPY --from=build /build/layers/interpreter /
COPY --from=build /build/layers/wheels /
COPY --from=build /build/layers/kubestow /
# If a library or a module is missing, the build fails here and not the daemon later.
RUN ["/opt/kubestow/bin/python", "-BPs", "-c", "import highspy, kopf, kubernetes_asyncio.config.kube_config, uvloop, scheduler.daemon.app, kubestow.simulation"]
ENV PATH=/opt/kubestow/bin
USER 65532:65532
EXPOSE 10259
# Kubernetes uses its own probes. This check serves a container that is started by hand with the default port.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["/opt/kubestow/bin/python", "-BPs", "-c", "import ssl, urllib.request; urllib.request.urlopen('https://127.0.0.1:10259/livez', timeout=4, context=ssl._create_unverified_context())"]
ENTRYPOINT ["/opt/kubestow/bin/kubestow"]
CMD ["run"]
