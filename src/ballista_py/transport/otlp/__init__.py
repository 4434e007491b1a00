"""OpenTelemetry metrics that come in by OTLP over gRPC."""
