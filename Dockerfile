# The server and the engine, each by its target. BASE is Debian 12 or newer.
ARG BASE=debian:12-slim

FROM $BASE AS python
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/*
# The engine's key is in a directory that both images have as a volume, and only the server's account reads it too.
RUN useradd --system --uid 8100 --user-group --home-dir /nonexistent --shell /usr/sbin/nologin sandbox-server \
    && install --directory --mode=2750 --group=sandbox-server /var/lib/sandbox-engine-key
ENV PATH=/opt/sandbox-server/bin:$PATH PYTHONUNBUFFERED=1

FROM python AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
# Where pip finds packages, if not where it does by itself. None of this stays in an image.
ARG PIP_INDEX_URL PIP_NO_INDEX PIP_FIND_LINKS
WORKDIR /build
COPY constraints.txt pyproject.toml ./
# By themselves, since they change less often than what is ours.
RUN python3 -m venv /opt/sandbox-server \
    && python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' >needed.txt \
    && pip install --no-cache-dir --constraint constraints.txt --requirement needed.txt hatchling
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
    && pip uninstall --yes hatchling

FROM python AS server
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/sandbox-server /opt/sandbox-server
RUN install --directory --owner=sandbox-server --group=sandbox-server /var/lib/sandbox-server
ENV SANDBOX_SERVER_HOST=0.0.0.0 SANDBOX_SERVER_STATE_DIR=/var/lib/sandbox-server
USER sandbox-server
EXPOSE 8100
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python3", "-c", "import httpx; httpx.get('http://127.0.0.1:8100/readyz').raise_for_status()"]
ENTRYPOINT ["sandbox-server"]
CMD ["serve"]

FROM python AS engine
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        catatonit e2fsprogs iproute2 kmod mmdebstrap nftables procps runc skopeo umoci \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/sandbox-server /opt/sandbox-server
COPY docker/engine/keep-serving /usr/local/bin/
ENV SANDBOX_ENGINE_HOST=0.0.0.0 SANDBOX_ENGINE_STATE_DIR=/var/lib/sandbox-engine
EXPOSE 3400
# The first start makes the base image.
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s \
    CMD ["python3", "-c", "import httpx; httpx.get('http://127.0.0.1:3400/health').raise_for_status()"]
ENTRYPOINT ["catatonit", "--", "keep-serving"]
