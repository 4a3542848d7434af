# One static binary on an empty base, run as nobody in particular.
#
#   docker build -t gapless .
#   docker run -p 8080:8080 -e GAPLESS_PUBLISH_KEY=x gapless
#
# Publish with `Authorization: Bearer x`, read at http://localhost:8080/events. Without a key (or GAPLESS_OPEN=true,
# which lets anybody publish) it refuses to start, since inside a container it has to listen on every address.
#
# Events end with the container, unless they are kept in a volume,
#
#   docker run -p 8080:8080 -e GAPLESS_PUBLISH_KEY=x -v events:/data -e GAPLESS_STORE=sqlite:/data/events.db gapless
#
# or in PostgreSQL (docs/deploy/compose.yaml).

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/gapless ./cmd/gapless
RUN mkdir /out/data

FROM scratch
# The roots of trust are for upstreams that speak TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/gapless /gapless
# Here a volume for SQLite is mounted; a new one takes this folder's owner.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
ENV GAPLESS_LISTEN=0.0.0.0:8080
# Where `gapless health` and the other client commands look, here inside the container.
ENV GAPLESS_URL=http://127.0.0.1:8080
EXPOSE 8080
# SIGTERM drains: every stream is told to come back, then the process ends by itself (--drain-timeout, 10 s).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["/gapless", "health"]
ENTRYPOINT ["/gapless"]
CMD ["serve"]
