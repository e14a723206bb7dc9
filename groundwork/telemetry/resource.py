"""Who speaks: the OpenTelemetry resource of a service. Imports the SDK: only what exports loads it.

The same whenever it is made, without a process id or a random instance: spans that are told again have to be identical.
OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word.
"""

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource

from groundwork.service.installed import installed_version


def resource_of(service: str) -> Resource:
    ours = Resource({SERVICE_NAME: service, SERVICE_VERSION: installed_version()})
    return ours.merge(OTELResourceDetector().detect())
