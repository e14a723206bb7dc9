"""Who speaks: the OpenTelemetry resource of a service, the same whenever it is made. OTEL_SERVICE_NAME and
OTEL_RESOURCE_ATTRIBUTES have the last word."""

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource

from groundwork.service.installed import installed_version


def resource_of(service: str) -> Resource:
    ours = Resource({SERVICE_NAME: service, SERVICE_VERSION: installed_version()})
    return ours.merge(OTELResourceDetector().detect())
